import { Attachment, type AttachmentOptions } from "./attachment.ts";
import type { KnownMasters } from "./known-masters.ts";
import { PerMaster } from "./per-master.ts";

export interface AttachmentsOptions
  extends Omit<AttachmentOptions, "master" | "whileRemoved" | "onReport"> {
  readonly masters: KnownMasters;
}

/** Keeps a node attached to all masters of its cluster, which report further ones. */
export class Attachments {
  readonly #each: PerMaster<Attachment>;

  constructor({ masters, ...rest }: AttachmentsOptions) {
    const open = (master: string) =>
      new Attachment({
        ...rest,
        master,
        onReport: (report) => masters.apply(master, report),
        whileRemoved: (signal) => {
          const fact = "not reconnected: it was removed from the masters";
          if (masters.isRemoved(master)) rest.log.info({ master }, fact);
          return masters.whileRemoved(master, signal);
        },
      });
    this.#each = new PerMaster(masters, open);
  }

  /** Masters that the node is attached to now. */
  get attachedCount(): number {
    return [...this.#each].filter(({ isAttached }) => isAttached).length;
  }

  /** Sends a heartbeat to each master within this turn of the event loop. */
  report(): void {
    for (const attachment of this.#each) attachment.report();
  }

  /** Registers with each master again. */
  registerAgain(): void {
    for (const attachment of this.#each) attachment.registerAgain();
  }

  close(): Promise<void> {
    return this.#each.close();
  }
}
