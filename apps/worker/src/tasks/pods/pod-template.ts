import { AppError } from "@heddle/base/errors";
import { readBoundedText } from "@heddle/base/flag-file";
import { isJsonObject } from "@heddle/base/json-object";
import type { Container, Metadata, Volume, VolumeMount } from "./kubernetes-types.ts";

const MAX_TEMPLATE_BYTES = 256 * 1024;
const MAX_NAMES = 256;
const NAME = /^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$/;

/** Parts of a Pod's metadata and spec. */
export interface PodTemplate {
  readonly metadata?: Pick<Metadata, "labels" | "annotations">;
  readonly spec?: Readonly<Record<string, unknown>> & {
    /** Its first one is that of the program. */
    readonly containers?: readonly ContainerTemplate[];
    readonly volumes?: readonly Volume[];
    readonly tolerations?: readonly object[];
    readonly imagePullSecrets?: readonly object[];
  };
}

const JOINED = ["volumes", "tolerations", "imagePullSecrets"] as const;

export interface ContainerTemplate {
  readonly env?: readonly { readonly name: string }[];
  readonly volumeMounts?: readonly VolumeMount[];
  readonly resources?: Container["resources"];
  readonly [field: string]: unknown;
}

/** The parts in the file; none for an empty name. Throws an AppError `invalid_value`. */
export function readTemplate(flag: "pod-template" | "pod-models", file: string): PodTemplate {
  return readObject(flag, file) as PodTemplate;
}

/** Keyed by the name of a profile or queue. Throws an AppError `invalid_value`. */
export function readPartsByName(
  flag: "pod-profiles" | "pod-queues",
  file: string,
): Readonly<Record<string, PodTemplate>> {
  const parts = readObject(flag, file);
  const names = Object.keys(parts);
  const wrong = names.find((name) => !NAME.test(name) || !isJsonObject(parts[name]));
  if (wrong === undefined && names.length <= MAX_NAMES)
    return parts as Readonly<Record<string, PodTemplate>>;
  const message = `--${flag} ${file} holds parts of Pods by name, at most ${MAX_NAMES}: ${wrong ?? "it has more"}`;
  throw new AppError("invalid_value", message);
}

/** The parts of both: lists are joined, of fields the second one's count. */
export function mergedTemplate(first: PodTemplate, second: PodTemplate): PodTemplate {
  const [one = {}] = first.spec?.containers ?? [];
  const [two = {}] = second.spec?.containers ?? [];
  const container: ContainerTemplate = {
    ...one,
    ...two,
    env: [...(one.env ?? []), ...(two.env ?? [])],
    volumeMounts: [...(one.volumeMounts ?? []), ...(two.volumeMounts ?? [])],
  };
  return {
    metadata: {
      labels: { ...first.metadata?.labels, ...second.metadata?.labels },
      annotations: { ...first.metadata?.annotations, ...second.metadata?.annotations },
    },
    spec: {
      ...first.spec,
      ...second.spec,
      ...joinedLists(first.spec, second.spec),
      containers: [container],
    },
  };
}

function joinedLists(first: PodTemplate["spec"], second: PodTemplate["spec"]): object {
  const lists = JOINED.map((name) => [name, [...(first?.[name] ?? []), ...(second?.[name] ?? [])]]);
  return Object.fromEntries(lists.filter(([, list]) => list?.length !== 0));
}

function readObject(flag: string, file: string): Readonly<Record<string, unknown>> {
  if (file === "") return {};
  const advice = "it holds a JSON object, of 256 KiB at most";
  try {
    const text = readBoundedText(file);
    const value: unknown = JSON.parse(text);
    if (isJsonObject(value) && text.length <= MAX_TEMPLATE_BYTES) return value;
  } catch (cause) {
    const message = `--${flag} ${file} cannot be read (${(cause as Error).message}): ${advice}`;
    throw new AppError("invalid_value", message, { cause });
  }
  throw new AppError("invalid_value", `--${flag} ${file} cannot be used: ${advice}`);
}
