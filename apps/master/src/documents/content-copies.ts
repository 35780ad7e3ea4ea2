import { retry } from "@heddle/base/async/retry";
import { AppError, toAppError } from "@heddle/base/errors";
import type { GroupMember } from "../control-plane/control-group.ts";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import type { ContentReplicas } from "./content-replicas.ts";

/** How long masters may take to fetch what they lack; each tries every two seconds. */
const TIMEOUT_MS = 15_000;
const PAUSE_MS = 500;

/** Checks whether enough masters have the contents of all documents. */
export class ContentCopies {
  readonly #replicas: Pick<ContentReplicas, "missingOn">;
  readonly #control: Pick<ControlPlane, "group">;

  constructor(replicas: Pick<ContentReplicas, "missingOn">, control: Pick<ControlPlane, "group">) {
    this.#replicas = replicas;
    this.#control = control;
  }

  /**
   * Resolves when a majority of the voters without that one have the content of every document.
   * Throws `conflict` where they do not within 15 seconds.
   */
  async awaitWithout(name: string): Promise<void> {
    const { members = [] } = this.#control.group?.status() ?? {};
    const isVoter = members.some((member) => member.name === name && member.votes);
    const rest = members.filter((member) => member.name !== name && member.votes);
    if (!isVoter || rest.length === 0) return;
    await retry(() => this.#check(rest, name), {
      backoff: { baseMs: PAUSE_MS, maxMs: PAUSE_MS },
      deadlineMs: TIMEOUT_MS,
      isPassing: (error) => toAppError(error).code === "conflict",
    });
  }

  async #check(rest: readonly GroupMember[], leaving: string): Promise<void> {
    const needed = Math.floor(rest.length / 2) + 1;
    const lacks = await Promise.all(rest.map((member) => this.#lack(member)));
    const faults = lacks.filter((lack) => lack !== undefined);
    const complete = rest.length - faults.length;
    if (complete >= needed) return;
    const message = `${leaving} cannot be removed yet: only ${complete} of the ${rest.length} other masters ${complete === 1 ? "has" : "have"} the contents of all documents, and ${needed} must: ${faults.join("; ")}. Try again when \`heddle_documents_missing\` is 0 on them; \`force\` removes it and gives up contents that only it has.`;
    throw new AppError("conflict", message);
  }

  /** What a master lacks, in words; undefined if it has all. */
  async #lack(member: GroupMember): Promise<string | undefined> {
    try {
      const count = await this.#replicas.missingOn(member);
      return count === 0 ? undefined : `${member.name} lacks ${count}`;
    } catch (error) {
      return `${member.name} did not answer (${toAppError(error).message})`;
    }
  }
}
