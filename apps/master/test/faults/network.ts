import { execFileSync } from "node:child_process";

/**
 * A network namespace for each master, joined by a bridge to this one, from which clients reach
 * them. Packets can be dropped silently, one way or both. Needs root and iproute2.
 */
export class HostNetwork {
  readonly #names: readonly string[];
  /** Short, as an interface's name has 15 characters at most. */
  readonly #prefix = `hd${process.pid.toString(36)}`;
  readonly #subnet = `10.${200 + (process.pid % 50)}.${(process.pid >> 6) % 250}`;

  constructor(names: readonly string[]) {
    this.#names = names;
    try {
      this.#setUp();
    } catch (error) {
      this.close();
      throw error;
    }
  }

  address(name: string): string {
    return `${this.#subnet}.${this.#number(name)}`;
  }

  /** The prefix of a command line that runs on that host. */
  wrap(name: string): readonly string[] {
    return ["ip", "netns", "exec", this.#namespace(name)];
  }

  /** Drops what one host sends to the other: it is routed to an address without an interface. */
  cut(from: string, to: string): void {
    const unreachable = ["lladdr", "02:00:00:00:00:99", "nud", "permanent", "dev", "eth0"];
    ip("-n", this.#namespace(from), "neigh", "replace", this.address(to), ...unreachable);
  }

  /** Removes all cuts. */
  heal(): void {
    for (const name of this.#names) {
      const namespace = this.#namespace(name);
      ip("-n", namespace, "neigh", "flush", "dev", "eth0", "nud", "permanent");
    }
  }

  close(): void {
    for (const name of this.#names) attempt("netns", "del", this.#namespace(name));
    attempt("link", "del", this.#bridge);
  }

  get #bridge(): string {
    return `${this.#prefix}b`;
  }

  #number(name: string): number {
    return this.#names.indexOf(name) + 1;
  }

  #namespace(name: string): string {
    return `${this.#prefix}n${this.#number(name)}`;
  }

  #setUp(): void {
    ip("link", "add", this.#bridge, "type", "bridge");
    ip("addr", "add", `${this.#subnet}.254/24`, "dev", this.#bridge);
    ip("link", "set", this.#bridge, "up");
    for (const name of this.#names) {
      const namespace = this.#namespace(name);
      const outside = `${this.#prefix}v${this.#number(name)}`;
      ip("netns", "add", namespace);
      ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", namespace);
      ip("link", "set", outside, "master", this.#bridge, "up");
      ip("-n", namespace, "addr", "add", `${this.address(name)}/24`, "dev", "eth0");
      ip("-n", namespace, "link", "set", "eth0", "up");
      ip("-n", namespace, "link", "set", "lo", "up");
    }
  }
}

/** Why this machine lacks such networks; undefined if it has them. */
export function whyNoNetworks(): string | undefined {
  try {
    new HostNetwork(["probe"]).close();
    return undefined;
  } catch (error) {
    return `network namespaces cannot be made here (${firstLine(error)})`;
  }
}

function ip(...args: string[]): void {
  execFileSync("ip", args, { stdio: ["ignore", "ignore", "pipe"] });
}

/** Ignores the error of removing what does not exist. */
function attempt(...args: string[]): void {
  try {
    ip(...args);
  } catch {
    // It was not created, or was removed with its namespace.
  }
}

function firstLine(error: unknown): string {
  return (
    String((error as Error).message)
      .trim()
      .split("\n")
      .at(-1) ?? ""
  );
}
