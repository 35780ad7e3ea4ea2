import { AppError, toAppError } from "@heddle/base/errors";
import { type CosignedCheckpoint, eventLogOperations } from "@heddle/contracts/api/events/log";
import { checkpointSize } from "@heddle/control/audit/audit-changes";
import type { EventStore } from "@heddle/event-store/log/event-store";
import { parseCheckpoint } from "@heddle/event-store/notes/checkpoint";
import type { NoteKey } from "@heddle/event-store/notes/key-text";
import type { NoteVerifier } from "@heddle/event-store/notes/note-key";
import {
  formatNote,
  isSameKey,
  type NoteSignature,
  parseNote,
  parseSignatures,
  type SignedNote,
  verifyNote,
  withSignatures,
} from "@heddle/event-store/notes/signed-note";
import { Controller, Inject, Req } from "@nestjs/common";
import { MASTER_CONFIG } from "../../config/config.module.ts";
import type { MasterConfig } from "../../config/config.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { witnessesOf } from "../../control-plane/event-log/witnesses.ts";
import { propose } from "../../control-plane/propose.ts";
import type { CallerRequest } from "../../http/access.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { ownEventLog } from "./own-event-log.ts";

/** Witnesses may sign at the same time. */
const ATTEMPTS = 4;

/** Signatures of witnesses, who have seen that the log only grows. */
@Controller()
export class CosignaturesController {
  readonly #control: ControlPlane;
  readonly #witnesses: readonly NoteVerifier[];

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(MASTER_CONFIG) { eventWitnesses }: MasterConfig,
  ) {
    this.#control = control;
    this.#witnesses = witnessesOf(eventWitnesses);
  }

  @Serves(eventLogOperations.cosign)
  async cosign(@Req() request: CallerRequest): Promise<CosignedCheckpoint> {
    const { size, signatures } = bodyOf(eventLogOperations.cosign, request);
    const { store } = ownEventLog(this.#control);
    if (this.#witnesses.length === 0) {
      throw new AppError(
        "conflict",
        "The masters know no witness: list keys in --event-witnesses.",
      );
    }
    const given = parseSignatures(signatures);
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#add(store, size, given);
      } catch (error) {
        // Another witness signed the same checkpoint meanwhile.
        if (toAppError(error).code !== "conflict" || attempt === ATTEMPTS) throw error;
      }
    }
  }

  async #add(
    store: EventStore,
    size: number,
    given: readonly NoteSignature[],
  ): Promise<CosignedCheckpoint> {
    const note = await this.#kept(store, size);
    const verified = verifyNote({ text: note.text, signatures: given }, this.#witnesses);
    const isTrusted = (key: NoteKey) => verified.some((witness) => isSameKey(key, witness));
    const cosigned = withSignatures(note, given.filter(isTrusted));
    const command = { type: "events.cosign", atMs: Date.now(), size } as const;
    await propose(this.#control, { ...command, note: formatNote(cosigned) });
    const witnesses = cosigned.signatures.filter((each) =>
      this.#witnesses.some((witness) => isSameKey(each, witness)),
    );
    return { object: "cosigned_checkpoint", size, witnesses: witnesses.map(({ name }) => name) };
  }

  /** The checkpoint of that size, with the signatures that it has so far. */
  async #kept(store: EventStore, size: number): Promise<SignedNote> {
    const { cluster } = this.#control.state;
    for (const name of ["cosigned", "checkpoint"] as const) {
      const note = cluster.get(name);
      if (typeof note === "string" && checkpointSize(note) === size) return parseNote(note);
    }
    const note = await store.checkpointFrom(size);
    if (note && parseCheckpoint(note.text).size === size) return note;
    throw new AppError("not_found", `There is no checkpoint of ${size} events.`);
  }
}
