import { createHash } from "node:crypto";
import { CLUSTER_LABEL, RESOURCE_GROUP } from "@heddle/contracts/kubernetes/resource-kind";
import type { CustomResource, ResourceStatus } from "../kubernetes/custom-resource.ts";
import { isDeleting } from "../kubernetes/lifecycle.ts";
import type { NamespaceAccess } from "../kubernetes/namespace-access.ts";
import { isRefusedRequest, refusalText } from "../kubernetes/refusal.ts";
import type { Reconciler, Resources } from "../kubernetes/resource-controller.ts";
import type { StatusWriter } from "../kubernetes/status-writer.ts";
import type { ClusterThing, SettingsKind, ThingSettings } from "./settings-kind.ts";

/** The settings of the cluster's thing when its object was made for it. */
const MIRRORED = `${RESOURCE_GROUP}/settings`;

type NamedSpec = { readonly name?: string | undefined };
type SettingsObject<Spec> = CustomResource<
  Spec & NamedSpec,
  ResourceStatus & { readonly settings?: string | undefined }
>;

/**
 * Objects whose spec is the settings of a thing in the cluster. Both sides may change them: what differs
 * from what they last had in common has changed, and is carried to the other side. If both have, the spec
 * wins. Nothing is removed from the cluster with an object: its API cannot remove these things.
 */
export class SettingsReconciler<Spec> implements Reconciler<SettingsObject<Spec>> {
  readonly plural: string;
  readonly #kind: SettingsKind<Spec>;
  readonly #statuses: StatusWriter;
  readonly #access: NamespaceAccess;
  #things: readonly ClusterThing[] = [];

  constructor(kind: SettingsKind<Spec>, statuses: StatusWriter, access: NamespaceAccess) {
    this.plural = kind.plural;
    this.#kind = kind;
    this.#statuses = statuses;
    this.#access = access;
  }

  idOf({ spec, metadata }: SettingsObject<Spec>): string {
    return spec.name ?? metadata.name;
  }

  async poll(): Promise<ReadonlyMap<string, string>> {
    this.#things = await this.#kind.list();
    return new Map(this.#things.map(({ id, ...shown }) => [id, JSON.stringify(shown)] as const));
  }

  async mirror({ api, objects }: Resources<SettingsObject<Spec>>): Promise<void> {
    const { mirror, kind } = this.#kind;
    if (!mirror) return;
    const present = new Set([...objects()].map((object) => this.idOf(object)));
    const names = new Set([...objects()].map(({ metadata }) => metadata.name));
    for (const { id, name: called = id, settings } of this.#things) {
      if (present.has(id)) continue;
      const name = [called, id].map(objectName).find((each) => !names.has(each)) ?? objectName(id);
      names.add(name);
      const labels = { [CLUSTER_LABEL]: mirror.cluster };
      const metadata = { name, namespace: mirror.namespace, labels };
      const spec = {
        ...withoutNulls(this.#kind.patchOf(settings) ?? {}),
        ...(name === id ? {} : { name: id }),
      };
      // A name that another cluster's object has stays its own.
      await api.create(kind, {
        metadata: { ...metadata, annotations: { [MIRRORED]: textOf(settings) } },
        spec,
      });
    }
  }

  async reconcile(
    object: SettingsObject<Spec>,
    { api }: Resources<SettingsObject<Spec>>,
  ): Promise<number | undefined> {
    if (isDeleting(object)) return undefined;
    const { namespace } = object.metadata;
    const refusal = this.#access.clusterRefusal(namespace, this.#kind.kind);
    if (refusal) return this.#refuse(api, object, "Refused", refusal);
    const id = this.idOf(object);
    const thing = await this.#kind.get(id);
    if (!thing && this.#kind.mirror) {
      if (object.metadata.annotations?.[MIRRORED] !== undefined) {
        await api.remove(object);
        return undefined;
      }
      const message = `the cluster knows no ${this.#kind.kind} ${id}; its objects are made by the operator`;
      return this.#refuse(api, object, "NotFound", message);
    }
    try {
      const { current, shown } = await this.#agree(object, id, thing, api);
      await this.#show(api, current, shown, object.status?.phase);
      return undefined;
    } catch (error) {
      if (!isRefusedRequest(error)) throw error;
      return this.#refuse(api, object, "Refused", refusalText(error));
    }
  }

  /** Carries a change to the other side; resolves with both as they are then. */
  async #agree(
    object: SettingsObject<Spec>,
    id: string,
    thing: ClusterThing | undefined,
    api: Resources<SettingsObject<Spec>>["api"],
  ): Promise<{ readonly current: SettingsObject<Spec>; readonly shown: ClusterThing }> {
    const { spec, status, metadata } = object;
    const settings = this.#kind.wanted(spec);
    if (thing && settings === undefined) return { current: object, shown: thing };
    const wanted = textOf(settings ?? {});
    if (thing && wanted === textOf(thing.settings)) return { current: object, shown: thing };
    const agreed = status?.settings ?? metadata.annotations?.[MIRRORED];
    if (!thing || wanted !== agreed) {
      return { current: object, shown: await this.#kind.apply(id, spec) };
    }
    const change = this.#kind.patchOf(thing.settings);
    // Both stay as they are, and what they had in common too.
    if (!change) return { current: object, shown: { ...thing, settings: settings ?? {} } };
    return { current: await api.patch(object, { spec: change }), shown: thing };
  }

  async #show(
    api: Resources<SettingsObject<Spec>>["api"],
    object: SettingsObject<Spec>,
    { settings, status, phase, reason = null, message = null, conditions = [] }: ClusterThing,
    phaseBefore: string | undefined,
  ): Promise<void> {
    const applied = { type: "Accepted", status: "True", reason: "Applied", message: "" } as const;
    const shown = { phase, reason, message, ...status, settings: textOf(settings) };
    const all = { ...shown, conditions: [applied, ...conditions] };
    await this.#statuses.show(api, object, all, phaseBefore);
  }

  #refuse(
    api: Resources<SettingsObject<Spec>>["api"],
    object: SettingsObject<Spec>,
    reason: string,
    message: string,
  ): Promise<number> {
    return this.#statuses.refuse(api, object, { reason, message, types: ["Accepted"] });
  }
}

/** Equal settings have equal texts, whatever the order of their fields. */
function textOf(settings: ThingSettings): string {
  const entries = Object.entries(settings).filter(([, value]) => value !== undefined);
  return JSON.stringify(entries.sort(([left], [right]) => (left < right ? -1 : 1)));
}

/** In a new object there is nothing that a null would remove. */
function withoutNulls(patch: object): object {
  return Object.fromEntries(
    Object.entries(patch).flatMap(([name, value]) => {
      if (value === null) return [];
      return [[name, typeof value === "object" ? withoutNulls(value) : value]];
    }),
  );
}

/** A name that Kubernetes takes; one that had to be changed has a digest, so that no two are equal. */
function objectName(id: string): string {
  if (/^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/.test(id)) return id;
  const digest = createHash("sha256").update(id).digest("hex").slice(0, 8);
  const base = id
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-|-$/g, "");
  return `${base}-${digest}`.replace(/^-/, "");
}
