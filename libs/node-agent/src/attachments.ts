import { Attachment, type AttachmentOptions, type ReportedMembers } from "./attachment.ts";

export interface AttachmentsOptions
  extends Omit<AttachmentOptions, "master" | "whileRemoved" | "onMembers"> {
  /** host:port of each master's gRPC server. */
  readonly masters: readonly string[];
}

/**
 * Keeps a node attached to all masters. A master that was removed during its absence cannot say so,
 * so the others report the members. While all attached masters omit a name, its address is not
 * tried.
 */
export class Attachments {
  readonly #each: readonly Attachment[];
  /** By address: the name of its last master. */
  readonly #names = new Map<string, string>();
  /** By address: the group's members as reported by the master there. */
  readonly #members = new Map<string, readonly string[]>();
  /** Replaced on each change of reported members. */
  #changed = Promise.withResolvers<void>();

  constructor({ masters, ...rest }: AttachmentsOptions) {
    this.#each = masters.map(
      (master) =>
        new Attachment({
          ...rest,
          master,
          onMembers: (reported) => this.#apply(master, reported),
          whileRemoved: (signal) => {
            const fact = "not looked for: it was removed from the masters";
            if (this.isRemoved(master)) rest.log.info({ master }, fact);
            return this.whileRemoved(master, signal);
          },
        }),
    );
  }

  /** Masters that the node is attached to now. */
  get attachedCount(): number {
    return this.#each.filter(({ isAttached }) => isAttached).length;
  }

  /** Whether the master last seen at that address is no longer a member; false without a report. */
  isRemoved(master: string): boolean {
    const name = this.#names.get(master);
    const known = [...this.#members.values()];
    if (name === undefined || known.length === 0) return false;
    return known.every((members) => !members.includes(name));
  }

  /** Resolves when the address may be tried: at once, unless its master was removed. */
  async whileRemoved(master: string, signal: AbortSignal): Promise<void> {
    if (!this.isRemoved(master)) return;
    const closing = Promise.withResolvers<unknown>();
    signal.addEventListener("abort", closing.resolve, { once: true });
    while (this.isRemoved(master) && !signal.aborted) {
      await Promise.race([this.#changed.promise, closing.promise]);
    }
    signal.removeEventListener("abort", closing.resolve);
  }

  /** Sends a heartbeat to each master within this turn of the event loop. */
  report(): void {
    for (const attachment of this.#each) attachment.report();
  }

  async close(): Promise<void> {
    await Promise.all(this.#each.map((attachment) => attachment.close()));
  }

  #apply(master: string, reported: ReportedMembers | undefined): void {
    if (reported) this.#names.set(master, reported.masterName);
    if (reported && reported.members.length > 0) this.#members.set(master, reported.members);
    else this.#members.delete(master);
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }
}
