import { AppError } from "@heddle/base/errors";
import {
  type CheckpointQuery,
  type ConsistencyProof,
  type EventLogKeys,
  type ExportQuery,
  eventLogOperations,
  type LogEvent,
  type ShreddedSubject,
} from "@heddle/contracts/api/events/log";
import type { QueryOf } from "@heddle/contracts/api/operation";
import { exportLines } from "@heddle/event-store/export/export-lines";
import { parseCheckpoint } from "@heddle/event-store/notes/checkpoint";
import { formatNote, parseNote, type SignedNote } from "@heddle/event-store/notes/signed-note";
import { formatTlogProof } from "@heddle/event-store/notes/tlog-proof";
import { Controller, Inject, Param, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { eventKeys, rotateEventKey } from "../../control-plane/event-log/checkpoint-signer.ts";
import { propose } from "../../control-plane/propose.ts";
import type { RecordedEvents } from "../../control-plane/recorded-events.ts";
import type { CallerRequest } from "../../http/access.ts";
import { responseDrained } from "../../http/drained.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { logFilter } from "./event-log-filter.ts";
import { ownEventLog } from "./own-event-log.ts";

/** Exports that one master writes at once. */
const MAX_EXPORTS = 4;

/** What proves the event log to those who do not trust the masters. */
@Controller()
export class EventProofsController {
  readonly #control: ControlPlane;
  #exports = 0;

  constructor(@Inject(CONTROL_PLANE) control: ControlPlane) {
    this.#control = control;
  }

  @Serves(eventLogOperations.keys)
  keys(): EventLogKeys {
    const { origin, store } = this.#log();
    const keys = eventKeys(this.#control, origin).map(({ verifierKey }) => verifierKey);
    const [first, size] = [String(store.first), String(store.size)];
    return { object: "event_log_keys", origin, keys, first, size };
  }

  @Serves(eventLogOperations.rotateKey)
  async rotateKey(): Promise<EventLogKeys> {
    await rotateEventKey(this.#control, this.#log().origin);
    return this.keys();
  }

  @Serves(eventLogOperations.shred)
  async shred(@Req() request: CallerRequest): Promise<ShreddedSubject> {
    const control = this.#control;
    const { subject } = bodyOf(eventLogOperations.shred, request);
    await control.group?.readBarrier();
    const id = control.state.subjects.get(subject);
    if (id === undefined) {
      const message =
        "No personal data are kept of this subject. Give user:ID, key:ID or service:NAME of a caller, or the user_id of logged events.";
      throw new AppError("not_found", message, { param: "subject" });
    }
    await propose(control, { type: "events.shred", atMs: Date.now(), subject, id });
    return { object: "shredded_subject", id };
  }

  @Serves(eventLogOperations.checkpoint)
  async checkpoint(
    @Query() { cosigned }: CheckpointQuery,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const checkpoint = cosigned ? this.#cosigned() : this.#log().store.checkpoint;
    if (!checkpoint) throw noCheckpoint();
    await sendText(reply, formatNote(checkpoint));
  }

  @Serves(eventLogOperations.proof)
  async proof(
    @Param("sequence") given: string,
    @Req() request: CallerRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const { store } = this.#log();
    const { sequence } = await this.#entryOf(given, request, "proof");
    await sendText(reply, formatTlogProof(await store.prove(sequence)));
  }

  @Serves(eventLogOperations.entry)
  async entry(
    @Param("sequence") given: string,
    @Req() request: CallerRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const { bytes = Buffer.alloc(0) } = await this.#entryOf(given, request);
    await reply.header("content-type", "application/octet-stream").send(Buffer.from(bytes));
  }

  @Serves(eventLogOperations.consistency)
  async consistency(
    @Query() { from, to }: QueryOf<typeof eventLogOperations.consistency>,
  ): Promise<ConsistencyProof> {
    const { store } = this.#log();
    if (from > to || to > store.size) {
      const message = `expected sizes up to ${store.size}, the smaller one first, got ${from} and ${to}.`;
      throw new AppError("invalid_value", `Invalid value for 'to': ${message}`, { param: "to" });
    }
    const proof = await store.proveConsistency(from, to);
    const hashes = proof.map((hash) => Buffer.from(hash).toString("base64"));
    return { object: "consistency_proof", from, to, hashes };
  }

  @Serves(eventLogOperations.export)
  async export(
    @Query() { first, end, since, cosigned }: ExportQuery,
    @Req() request: CallerRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const { store } = this.#log();
    if (!requestCaller(request).grants.may("events:read", "")) {
      const message =
        "An export has the events of all projects: it needs events:read in the whole cluster.";
      throw new AppError("permission_denied", message);
    }
    const checkpoint = cosigned ? this.#cosigned() : store.checkpoint;
    if (!checkpoint) throw noCheckpoint();
    if (this.#exports >= MAX_EXPORTS) {
      const message = `${MAX_EXPORTS} exports of events run on this master. Try again later.`;
      throw new AppError("overloaded", message, { retryAfterMs: 5_000 });
    }
    const range = {
      first: first ?? store.first,
      end: end ?? parseCheckpoint(checkpoint.text).size,
      since,
      checkpoint,
    };
    this.#exports++;
    try {
      await sendLines(reply, exportLines(store, range));
    } finally {
      this.#exports--;
    }
  }

  #cosigned(): SignedNote {
    const note = this.#control.state.cluster.get("cosigned");
    if (typeof note === "string") return parseNote(note);
    throw new AppError(
      "not_found",
      "No witness has signed a checkpoint yet: see --event-witnesses.",
    );
  }

  #log(): RecordedEvents {
    return ownEventLog(this.#control);
  }

  /** An event that the caller may see; others are as if they did not exist. */
  async #entryOf(given: string, request: CallerRequest, wanted: "entry" | "proof" = "entry") {
    const { store } = this.#log();
    const unknown = new AppError("not_found", `No event has the sequence ${given.slice(0, 20)}.`);
    const sequence = /^\d{1,15}$/.test(given) ? Number(given) : -1;
    if (sequence < 0 || sequence >= store.size) throw unknown;
    if (sequence < store.first) {
      // The event's project is no longer known.
      if (!requestCaller(request).grants.may("events:read", "")) throw unknown;
      if (wanted === "proof") return { sequence, bytes: undefined };
      const message = `Event ${sequence} was removed, as the settings event_days and event_mib say: the first that is kept is ${store.first}.`;
      throw new AppError("gone", message);
    }
    const [bytes] = (await store.read(sequence, 1)).entries;
    if (!bytes) throw unknown;
    const event = JSON.parse(Buffer.from(bytes).toString()) as LogEvent;
    if (!logFilter({}, requestCaller(request))(event)) throw unknown;
    return { sequence, bytes };
  }
}

function noCheckpoint(): AppError {
  const message = "The event log has no checkpoint yet: the leader signs one within a second.";
  return new AppError("not_found", message);
}

function sendText(reply: FastifyReply, text: string) {
  return reply.header("content-type", "text/plain; charset=utf-8").send(text);
}

/** The first line is made before the head is sent, so that a refusal has its status. */
async function sendLines(reply: FastifyReply, lines: AsyncGenerator<string, void>): Promise<void> {
  let line = await lines.next();
  reply.hijack();
  const { raw } = reply;
  raw.writeHead(200, { "content-type": "application/x-ndjson" });
  try {
    for (; !line.done && !raw.destroyed; line = await lines.next()) {
      if (!raw.write(line.value)) await responseDrained(raw);
    }
    raw.end();
  } catch (error) {
    // Only a broken stream can report the error now.
    raw.destroy(error instanceof Error ? error : undefined);
  } finally {
    await lines.return();
  }
}
