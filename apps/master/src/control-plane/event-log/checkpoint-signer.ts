import { createPrivateKey, generateKeyPairSync } from "node:crypto";
import { abortableDelay } from "@heddle/base/async/abortable-delay";
import { AppError, toAppError } from "@heddle/base/errors";
import { checkpointSize } from "@heddle/control/audit/audit-changes";
import { RECORDS_EVENTS, versionOf } from "@heddle/control/cluster-version";
import { checkpointText } from "@heddle/event-store/notes/checkpoint";
import { type NoteSigner, noteSigner } from "@heddle/event-store/notes/note-key";
import { formatNote, isSameKey, parseNote, signNote } from "@heddle/event-store/notes/signed-note";
import type { Logger } from "@heddle/observability/logger";
import { isActiveLeader } from "../active-leader.ts";
import type { ControlPlane } from "../control-plane.ts";
import { propose } from "../propose.ts";
import type { RecordedEvents } from "../recorded-events.ts";

/** How long events may wait for a checkpoint. */
const SIGN_MS = 1_000;

/**
 * Signs the event log while this master leads, by a key that the masters share as a secret of the
 * replicated state. A checkpoint is an entry of the log, so every master compares it with its own
 * events: one that has others ends.
 */
export class CheckpointSigner {
  readonly #control: ControlPlane;
  readonly #events: RecordedEvents;
  readonly #log: Logger;
  readonly #stop = new AbortController();

  constructor(control: ControlPlane, events: RecordedEvents, log: Logger) {
    this.#control = control;
    this.#events = events;
    this.#log = log;
  }

  async run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await abortableDelay(SIGN_MS, signal, { ref: false });
      if (signal.aborted || !isActiveLeader(this.#control)) continue;
      await this.sign().catch((error: unknown) => {
        this.#log.debug({ err: toAppError(error) }, "the event log is not signed yet");
      });
    }
  }

  close(): void {
    this.#stop.abort();
  }

  /** Signs the events since the last checkpoint. */
  async sign(): Promise<void> {
    const { state } = this.#control;
    const { store, origin, missing } = this.#events;
    const { size } = store;
    if (versionOf(state) < RECORDS_EVENTS || missing > 0) return;
    if (size <= checkpointSize(state.cluster.get("checkpoint"))) return;
    const signers = await this.#signers();
    const root = await store.tree(size).root();
    const text = checkpointText({ origin, size, root, extensions: [] });
    const note = formatNote(signNote(text, signers));
    await propose(this.#control, { type: "events.checkpoint", atMs: Date.now(), size, note });
  }

  /** The newest key's signer; for the first checkpoint under that key, the previous one's too. */
  async #signers(): Promise<NoteSigner[]> {
    const control = this.#control;
    const { origin } = this.#events;
    if (eventKeys(control, origin).length === 0) await createEventKey(control, 1);
    const known = eventKeys(control, origin);
    const newest = known.at(-1);
    if (!newest) throw new AppError("unavailable", "there is no key for the event log yet");
    const last = control.state.cluster.get("checkpoint");
    const signatures = typeof last === "string" ? parseNote(last).signatures : [];
    const isKnown = signatures.some((signature) => isSameKey(signature, newest));
    return isKnown ? [newest] : known.slice(-2);
  }
}

/** Keys of a cluster: the first, and its successors. */
const MAX_KEYS = 1_000;

function nameOf(number: number): string {
  return `event-key-${number}`;
}

/** The signers of all keys so far, the oldest first. */
export function eventKeys(control: Pick<ControlPlane, "secret">, origin: string): NoteSigner[] {
  const signers: NoteSigner[] = [];
  for (let number = 1; number <= MAX_KEYS; number++) {
    const pem = control.secret?.(nameOf(number));
    if (pem === undefined) break;
    signers.push(noteSigner(origin, createPrivateKey(pem)));
  }
  return signers;
}

/** Has the next checkpoint signed by a new key too, and later ones by it alone. */
export async function rotateEventKey(control: ControlPlane, origin: string): Promise<void> {
  await control.group?.readBarrier();
  const { length } = eventKeys(control, origin);
  if (length >= MAX_KEYS)
    throw new AppError("conflict", `the event log has ${length} keys already`);
  await createEventKey(control, length + 1);
}

/** Stores a new key unless another master has stored one meanwhile. */
async function createEventKey(
  control: Pick<ControlPlane, "keepSecret" | "takesSecrets">,
  number: number,
): Promise<void> {
  if (control.takesSecrets === false) {
    throw new AppError("unavailable", "the log of the masters is not encrypted yet");
  }
  const { privateKey } = generateKeyPairSync("ed25519");
  const pem = privateKey.export({ type: "pkcs8", format: "pem" });
  await control.keepSecret?.(nameOf(number), pem.toString());
}
