import type { Ledger } from "../cluster/ledger.ts";
import type { Roster } from "../cluster/roster.ts";
import type { TaskRequest } from "../model.ts";

/** A set of nodes that a gang must not cross, by their positions. */
export type Domain = readonly number[];

/** The bounds that a gang must stay within. */
interface BoundedGang {
  readonly tasks: number;
  readonly sameRack: boolean;
  readonly shape: { readonly request: TaskRequest };
}

/** The domains of a roster at one version, by their kind. */
interface KnownDomains {
  readonly version: number;
  readonly byBounds: Map<string, readonly Domain[]>;
}

const knownDomains = new WeakMap<Roster, KnownDomains>();

/** Whether all tasks of the gang must be in one domain. */
export function needsDomain({ tasks, sameRack, shape }: BoundedGang): boolean {
  return tasks > 1 && (sameRack || shape.request.infiniband);
}

/** The racks, fabrics, or racks within a fabric that the gang must not cross. */
export function domainsOf({ roster }: Ledger, gang: BoundedGang): readonly Domain[] {
  let known = knownDomains.get(roster);
  if (known?.version !== roster.version) {
    known = { version: roster.version, byBounds: new Map() };
    knownDomains.set(roster, known);
  }
  const { sameRack } = gang;
  const { infiniband } = gang.shape.request;
  const bounds = `${sameRack} ${infiniband}`;
  let domains = known.byBounds.get(bounds);
  if (!domains) {
    domains = groupNodes(roster, sameRack, infiniband);
    known.byBounds.set(bounds, domains);
  }
  return domains;
}

/** In the order of the first node of each. */
function groupNodes({ slots }: Roster, byRack: boolean, byFabric: boolean): Domain[] {
  const byKey = new Map<string, number[]>();
  for (const [position, { rack, fabric }] of slots.entries()) {
    if (byRack && rack === "") continue;
    const key = JSON.stringify([byRack && rack, byFabric && fabric]);
    const domain = byKey.get(key);
    if (domain) domain.push(position);
    else byKey.set(key, [position]);
  }
  return [...byKey.values()];
}
