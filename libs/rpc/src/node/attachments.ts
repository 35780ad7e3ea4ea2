import { Attachment, type AttachmentOptions, type SaidMembers } from "./attachment.ts";

export interface AttachmentsOptions
  extends Omit<AttachmentOptions, "master" | "whileRemoved" | "onMembers"> {
  /** host:port of each master's gRPC server. */
  readonly masters: readonly string[];
}

/**
 * Keeps a node attached to all masters. One that was removed from the group while it was gone cannot
 * say so: the others tell who is in it, and while all that this node is attached to leave out the
 * name of the one that is gone, its address is not tried.
 */
export class Attachments {
  readonly #each: readonly Attachment[];
  /** By address: the name of the master that was there last. */
  readonly #names = new Map<string, string>();
  /** By address: the group's masters as the one that is attached there knows them. */
  readonly #members = new Map<string, readonly string[]>();
  /** Replaced whenever a master tells of members, or is gone. */
  #changed = Promise.withResolvers<void>();

  constructor({ masters, ...rest }: AttachmentsOptions) {
    this.#each = masters.map(
      (master) =>
        new Attachment({
          ...rest,
          master,
          onMembers: (said) => this.#tell(master, said),
          whileRemoved: (signal) => {
            const fact = "not looked for: it was removed from the masters";
            if (this.isRemoved(master)) rest.log.info({ master }, fact);
            return this.whileRemoved(master, signal);
          },
        }),
    );
  }

  /** Whether the group has not the master any more that was at that address; false if none tells. */
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

  #tell(master: string, said: SaidMembers | undefined): void {
    if (said) this.#names.set(master, said.masterName);
    if (said && said.members.length > 0) this.#members.set(master, said.members);
    else this.#members.delete(master);
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }
}
