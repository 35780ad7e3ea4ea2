import { isHostPort, isLoopback, splitHostPort } from "@heddle/base/network/network-address";
import type { FollowedCluster } from "@heddle/rpc/followed-cluster";

/** Bounds on what masters may report to a node; a group has five members at most. */
const MAX_LEARNED = 16;
const MAX_ADDRESS_BYTES = 300;
const ANY_INTERFACE: ReadonlySet<string> = new Set(["0.0.0.0", "::"]);

export interface KnownMastersOptions {
  /** host:port of the gRPC servers of the masters that the node was started with. */
  readonly given: readonly string[];
  /** Whether the node speaks in plain text, which must not leave its machine. */
  readonly staysHere: boolean;
  readonly followed: Pick<FollowedCluster, "refusalOf">;
}

/** A master's report of its group. */
export interface ReportedGroup {
  readonly masterName: string;
  readonly cluster: string;
  /** All masters of the group; empty if unknown. */
  readonly members: readonly ReportedMember[];
}

export interface ReportedMember {
  readonly name: string;
  /** Undefined from a master of an earlier version. */
  readonly address: string | undefined;
}

/**
 * The masters that a node looks for: the given addresses, and those of further members that masters
 * report. A learned address is dropped with its member, and when a given one leads to that master.
 *
 * A master that was removed during its absence cannot say so, so the others report the members.
 * While all attached masters omit the name last seen at a given address, it is not tried.
 */
export class KnownMasters {
  readonly #given: readonly string[];
  readonly #staysHere: boolean;
  readonly #followed: Pick<FollowedCluster, "refusalOf">;
  /** Keyed by the name of the master. */
  #learned: ReadonlyMap<string, string> = new Map();
  /** Keyed by address: the name of its last master. */
  readonly #names = new Map<string, string>();
  /** Keyed by address: what the master that is attached there reports. */
  readonly #reports = new Map<string, ReportedGroup>();
  /** The names of all masters as reported last. */
  #members: ReadonlySet<string> = new Set();
  readonly #listeners = new Set<() => void>();
  /** Replaced on each report. */
  #reported = Promise.withResolvers<void>();

  constructor({ given, staysHere, followed }: KnownMastersOptions) {
    this.#given = [...new Set(given)];
    this.#staysHere = staysHere;
    this.#followed = followed;
  }

  get addresses(): readonly string[] {
    return [...this.#given, ...this.#learned.values()];
  }

  /** The addresses of each master of the group; until that is known, each address is one. */
  get group(): readonly (readonly string[])[] {
    const { addresses } = this;
    if (this.#members.size === 0) return addresses.map((address) => [address]);
    return [...this.#members].map((name) =>
      addresses.filter(
        (each) => this.#learned.get(name) === each || this.#names.get(each) === name,
      ),
    );
  }

  /** Called when `addresses` have changed. */
  onChange(listener: () => void): void {
    this.#listeners.add(listener);
  }

  /** The master at that address reports its group; undefined when it disconnects. */
  apply(address: string, report: ReportedGroup | undefined): void {
    if (!this.addresses.includes(address)) return;
    if (report) this.#names.set(address, report.masterName);
    if (report && report.members.length > 0) this.#reports.set(address, report);
    else this.#reports.delete(address);
    this.#learn();
    this.#reported.resolve();
    this.#reported = Promise.withResolvers();
  }

  /** Whether the master last seen at that address is no longer a member; false without a report. */
  isRemoved(address: string): boolean {
    const name = this.#names.get(address);
    if (name === undefined || this.#current().length === 0) return false;
    return !this.#members.has(name);
  }

  /** Resolves when the address may be tried: at once, unless its master was removed. */
  async whileRemoved(address: string, signal: AbortSignal): Promise<void> {
    if (!this.isRemoved(address)) return;
    const closing = Promise.withResolvers<unknown>();
    signal.addEventListener("abort", closing.resolve, { once: true });
    while (this.isRemoved(address) && !signal.aborted) {
      await Promise.race([this.#reported.promise, closing.promise]);
    }
    signal.removeEventListener("abort", closing.resolve);
  }

  /** The reports of masters of the followed cluster. */
  #current(): [address: string, report: ReportedGroup][] {
    return [...this.#reports].filter(([, { cluster }]) => {
      return this.#followed.refusalOf(cluster) === undefined;
    });
  }

  /** Without a report all stays as it was: the masters may all be restarting. */
  #learn(): void {
    const reports = this.#current();
    if (reports.length === 0) return;
    this.#members = new Set(reports.flatMap(([, { members }]) => members.map(({ name }) => name)));
    const before = this.addresses;
    this.#learned = this.#learnable(reports);
    const after = this.addresses;
    for (const address of before) {
      if (after.includes(address)) continue;
      this.#names.delete(address);
      this.#reports.delete(address);
    }
    if (`${before}` === `${after}`) return;
    for (const listener of this.#listeners) listener();
  }

  /** An address of each master to which no given one leads; of several the one in use. */
  #learnable(reports: readonly [address: string, report: ReportedGroup][]): Map<string, string> {
    const learned = new Map<string, string>();
    const taken = new Set(this.#given);
    const reached = new Set(
      reports.flatMap(([at, { masterName }]) => (this.#given.includes(at) ? [masterName] : [])),
    );
    const offers = reports.flatMap(([from, { members }]) =>
      members.flatMap(({ name, address = "" }) =>
        this.#mayDial(address, from) ? [[name, address] as const] : [],
      ),
    );
    const isInUse = ([name, address]: readonly [string, string]) =>
      this.#learned.get(name) === address;
    for (const [name, address] of [...offers.filter(isInUse), ...offers]) {
      if (reached.has(name) || learned.has(name) || taken.has(address)) continue;
      if (learned.size === MAX_LEARNED) break;
      learned.set(name, address);
      taken.add(address);
    }
    return learned;
  }

  /** A loopback address means the machine of the master that reports it. */
  #mayDial(address: string, from: string): boolean {
    if (Buffer.byteLength(address) > MAX_ADDRESS_BYTES || !isHostPort(address)) return false;
    const [host] = splitHostPort(address);
    if (isLoopback(host)) return isLoopback(splitHostPort(from)[0]);
    return !(this.#staysHere || ANY_INTERFACE.has(host));
  }
}
