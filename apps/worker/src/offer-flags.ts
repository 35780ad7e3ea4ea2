import { resolve } from "node:path";
import { AppError } from "@heddle/base/errors";
import type { Gpu } from "@heddle/contracts/generated/heddle/v1/Gpu";
import { wholeNumber } from "@heddle/rpc/node/node-flags";
import { simulatedGpus } from "@heddle/rpc/node/simulated-gpus";

/** The flags of a worker that say what it offers to jobs. */
export const OFFER_FLAGS = [
  "simulate-gpus",
  "labels",
  "taints",
  "rack",
  "fabric",
  "local-ssd-gb",
  "io-operations-per-sec",
  "network-gbps",
  "checkpoints",
  "task-log-mib",
  "plugins",
  "artifacts-mib",
  "artifacts-hours",
] as const;

/** What a worker offers to jobs, and how it runs them. */
export interface WorkerOffer {
  readonly simulatedGpus?: readonly Gpu[] | undefined;
  readonly labels: Readonly<Record<string, string>>;
  readonly taints: readonly string[];
  readonly rack: string;
  readonly fabric: string;
  readonly localSsdBytes?: number | undefined;
  readonly ioOperationsPerSec?: number | undefined;
  readonly networkMbps?: number | undefined;
  /** Where checkpoints are kept; absent: with the tasks. */
  readonly checkpointDirectory?: string | undefined;
  /** Files of plugins with algorithms and environments for training; none where absent. */
  readonly plugins?: readonly string[] | undefined;
  /** Bytes kept of each stream of a task. */
  readonly maxLogBytes?: number | undefined;
  /** What tasks that ended may leave here together, and for how long. */
  readonly maxArtifactBytes?: number | undefined;
  readonly maxArtifactAgeMs?: number | undefined;
}

/** Throws an AppError `invalid_value` that names the flag and what it takes. */
export function readOffer(flags: Readonly<Record<string, string | undefined>>): WorkerOffer {
  const simulate = flags["simulate-gpus"];
  const number = (flag: (typeof OFFER_FLAGS)[number], max: number) =>
    wholeNumber(flag, flags[flag], 1, max);
  const localSsdGb = number("local-ssd-gb", 10_000_000);
  const networkGbps = number("network-gbps", 100_000);
  const logMib = number("task-log-mib", 1_048_576);
  const artifactsMib = number("artifacts-mib", 1_073_741_824);
  const artifactsHours = number("artifacts-hours", 876_000);
  return {
    ...(simulate !== undefined && { simulatedGpus: simulatedGpus(simulate) }),
    labels: readLabels(flags["labels"] ?? ""),
    taints: listOf("taints", flags["taints"] ?? "", /^[\w./=:-]{1,128}$/),
    rack: flags["rack"] ?? "",
    fabric: flags["fabric"] ?? "",
    localSsdBytes: localSsdGb && localSsdGb * 1e9,
    ioOperationsPerSec: number("io-operations-per-sec", 1_000_000_000),
    networkMbps: networkGbps && networkGbps * 1_000,
    checkpointDirectory: flags["checkpoints"],
    // Trainers run in folders of their own.
    plugins: listOf("plugins", flags["plugins"] ?? "", /^.{1,4096}$/).map((file) => resolve(file)),
    maxLogBytes: logMib && logMib * 2 ** 20,
    maxArtifactBytes: artifactsMib && artifactsMib * 2 ** 20,
    maxArtifactAgeMs: artifactsHours && artifactsHours * 3_600_000,
  };
}

function readLabels(text: string): Record<string, string> {
  const pairs = listOf("labels", text, /^[\w./-]{1,128}=[\w./:-]{0,256}$/);
  return Object.fromEntries(
    pairs.map((pair) => {
      const equals = pair.indexOf("=");
      return [pair.slice(0, equals), pair.slice(equals + 1)];
    }),
  );
}

function listOf(flag: string, text: string, form: RegExp): string[] {
  const parts = text.split(",").filter((part) => part !== "");
  const wrong = parts.find((part) => !form.test(part));
  if (wrong === undefined) return parts;
  const takes = flag === "plugins" ? "FILE,..." : flag === "labels" ? "NAME=VALUE,..." : "NAME,...";
  throw new AppError("invalid_value", `--${flag} takes ${takes}, not ${wrong}`);
}
