import { z } from "zod";
import { type ApiOperation, type DataOf, json } from "../operation.ts";
import { consistency, integerParameter, pageSchema, time } from "../parameters.ts";

/** A place in the event log. */
const sequenceText = z
  .string("expected one value")
  .regex(/^\d{1,15}$/, "expected the `sequence` of an event");

/** An event of the log: CloudEvents 1.0 in JSON. */
export const logEventSchema = z
  .object({
    specversion: z.literal("1.0").describe("Of CloudEvents."),
    id: z.string().describe("With `source` it identifies the event."),
    source: z.string().describe("The cluster, or what a client's event names."),
    type: z.string().describe("As `MODEL_TRAINING_START`, `MODEL_DEPLOYMENT` or `DATA_ACCESS`."),
    subject: z.string().describe("What it is about, as `jobs/ID`."),
    time: time.describe("When it happened."),
    datacontenttype: z.literal("application/json").describe("Of `data`."),
    sequence: z.string().describe("Its place in the log, from 0 on; the same on all masters."),
    recordedtime: time.describe("When it was recorded; it never goes back."),
    project: z.string().optional().describe("Absent for events of the whole cluster."),
    result: z
      .string()
      .optional()
      .describe("`success`, `refused`, `denied`, `failed`; `started` with `--audit-mode sync`."),
    userid: z
      .string()
      .optional()
      .describe("Who asked for it: `key:ID`, `user:SUBJECT` or `service:NAME`."),
    keyid: z.string().optional().describe("The id of the key of the service account."),
    sessionid: z
      .string()
      .optional()
      .describe("The `X-Session-Id` of the call: 1 to 128 printable characters."),
    requestid: z.string().optional().describe("The `X-Request-Id` of the call."),
    clientaddress: z.string().optional().describe("Where the call came from."),
    actorid: z.string().optional().describe("Whom a client's event is about."),
    correlationid: z.string().optional().describe("The request that a client's event names."),
    compliancelevel: z
      .string()
      .optional()
      .describe(
        "What a client's event says of it, else the `X-Compliance-Level` of the call: 1 to 64 printable characters.",
      ),
    stream: z.string().optional().describe("The stream of a client's event."),
    revision: z.string().optional().describe("Its place in its stream."),
    tags: z
      .string()
      .optional()
      .describe(
        "Separated by commas: those of a client's event, else the `X-Event-Tags` of the call, at most 16.",
      ),
    shredded: z
      .string()
      .optional()
      .describe("Whose personal data are gone with their key: `caller`, `actor` or both."),
    data: z.record(z.string(), z.unknown()).describe("What the type has to say."),
  })
  .meta({ id: "LogEvent", description: "An event of the event log, as CloudEvents 1.0." });

export type LogEvent = DataOf<typeof logEventSchema>;

const logPageSchema = pageSchema(logEventSchema).meta({ id: "LogEventPage" });

export type LogEventPage = DataOf<typeof logPageSchema>;

const text = (max: number) => {
  const length = `expected 1 to ${max} characters`;
  return z.string("expected one value").min(1, length).max(max, length).optional();
};
const moment = z.iso.datetime({ offset: true, error: "expected a time, as 2026-01-31T12:00:00Z" });

const logQuery = z.object({
  type: text(500).describe("Types, separated by commas."),
  project: text(63).describe("Events of that project."),
  subject: text(512).describe("The subject, or the beginning of it before a final `*`."),
  user: text(256).describe("The `userid`, or `key:ID` for the `keyid`."),
  tag: text(64).describe("A tag that it has."),
  since: moment.optional().describe("Recorded at that time or later."),
  until: moment.optional().describe("Recorded before that time."),
  after: sequenceText
    .optional()
    .describe(
      "The `sequence` of the last known event: later ones follow, or earlier ones with `order=desc`.",
    ),
  cursor: sequenceText.optional().describe("The `next_cursor` of the page before."),
  order: z.enum(["asc", "desc"], "expected `asc` or `desc`").default("asc"),
  limit: integerParameter(1, 1_000)
    .optional()
    .describe("Maximum number of listed events; 100 by default. A stream takes none."),
  consistency,
});

export type EventLogQuery = z.output<typeof logQuery>;

/** The longest data of a client's event, as JSON. */
const MAX_DATA_CHARACTERS = 16_384;
const name = (max: number) => {
  const expected = `expected 1 to ${max} printable ASCII characters without spaces`;
  return z.string().regex(new RegExp(`^[\\x21-\\x7e]{1,${max}}$`), expected);
};
/** The most tags of one event. */
const MAX_TAGS = 16;
const TAG = /^[A-Za-z0-9][A-Za-z0-9._:/=-]{0,63}$/;
const tag = z.string().regex(TAG, "expected a tag, as `gdpr`");

const logRequest = z
  .strictObject({
    type: z
      .string()
      .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/, "expected a type, as `MODEL_TRAINING_START`"),
    data: z
      .record(z.string(), z.json())
      .default({})
      .refine(
        (data) => JSON.stringify(data).length <= MAX_DATA_CHARACTERS,
        `expected at most ${MAX_DATA_CHARACTERS} characters of JSON`,
      ),
    subject: name(512).optional().describe("What it is about; the stream or the type if absent."),
    audit: z
      .strictObject({
        user_id: name(256).optional().describe("Whom it is about; the caller is `userid`."),
        session_id: name(128).optional(),
        request_id: name(128).optional().describe("Kept as `correlationid`."),
        compliance_level: name(64).optional(),
      })
      .optional(),
    tags: z.array(tag).max(MAX_TAGS).default([]),
    source: name(256)
      .optional()
      .describe("A URI reference; the caller if absent. With `id` it names the event."),
    id: name(128).optional().describe("An event with the same `source` and `id` is logged once."),
    stream: name(256).optional().describe("A sequence of events with revisions, from 0 on."),
    expected_revision: z
      .union([z.literal("any"), z.literal("none"), z.literal("exists"), z.int().min(0)])
      .default("any")
      .describe("The stream must have no event, any, or this one as its last: else 412."),
  })
  .meta({ id: "LogEventRequest" });

export type LogEventRequest = z.input<typeof logRequest>;

const loggedSchema = z
  .object({
    object: z.literal("logged_event"),
    source: z.string(),
    id: z.string(),
    stream: z.string().nullable(),
    revision: z.int().nullable().describe("Of the stream."),
    repeated: z.boolean().describe("It was logged before, and is not logged again."),
  })
  .meta({ id: "LoggedEvent" });

export type LoggedEvent = DataOf<typeof loggedSchema>;

const shredRequest = z
  .strictObject({
    subject: z
      .string("expected one value")
      .min(1)
      .max(256)
      .describe(
        "`user:ID`, `key:ID` or `service:NAME` of a caller, or the `audit.user_id` of clients' events.",
      ),
  })
  .meta({ id: "ShredRequest" });

const shreddedSchema = z
  .object({
    object: z.literal("shredded_subject"),
    id: z.string().describe("Of the key that was removed, as the events name it."),
  })
  .meta({ id: "ShreddedSubject" });

export type ShreddedSubject = DataOf<typeof shreddedSchema>;

const keysSchema = z
  .object({
    object: z.literal("event_log_keys"),
    origin: z.string().describe("The name of the log, which its checkpoints begin with."),
    keys: z.array(z.string()).describe("As NAME+ID+BASE64, the oldest first."),
    first: z.string().describe("The `sequence` of the first event that is kept."),
    size: z.string().describe("The number of events, with those that were removed."),
  })
  .meta({ id: "EventLogKeys", description: "What verifies the checkpoints of the event log." });

export type EventLogKeys = DataOf<typeof keysSchema>;

const consistencySchema = z
  .object({
    object: z.literal("consistency_proof"),
    from: z.int(),
    to: z.int(),
    hashes: z.array(z.string()).describe("RFC 6962, section 2.1.2, in base64."),
  })
  .meta({ id: "ConsistencyProof" });

export type ConsistencyProof = DataOf<typeof consistencySchema>;

const treeSize = (what: string) =>
  z
    .string("expected one value")
    .regex(/^\d{1,15}$/, "expected a number of events")
    .transform(Number)
    .pipe(z.int())
    .describe(what);

const cosigned = z
  .enum(["true", "false"], "expected `true` or `false`")
  .default("false")
  .transform((text) => text === "true");

const checkpointQuery = z.object({
  cosigned: cosigned.describe("The newest one that a witness signed."),
});

export type CheckpointQuery = z.output<typeof checkpointQuery>;

const cosignRequest = z
  .strictObject({
    size: z.int().min(1).describe("The number of events of the checkpoint."),
    signatures: z
      .string()
      .min(1)
      .max(4_096)
      .describe("Lines of signatures, as C2SP tlog-witness has them."),
  })
  .meta({ id: "CosignRequest" });

export type CosignRequest = z.input<typeof cosignRequest>;

const cosignedSchema = z
  .object({
    object: z.literal("cosigned_checkpoint"),
    size: z.int(),
    witnesses: z.array(z.string()).describe("Names of those that have signed it."),
  })
  .meta({ id: "CosignedCheckpoint" });

export type CosignedCheckpoint = DataOf<typeof cosignedSchema>;

const exportQuery = z.object({
  first: treeSize("The first event.").optional(),
  end: treeSize("The event after the last; by default all that are signed.").optional(),
  since: treeSize("A size whose checkpoint the reader has.").optional(),
  cosigned: cosigned.describe("By the newest checkpoint that a witness signed."),
});

export type ExportQuery = z.output<typeof exportQuery>;

const LOG_PATH = "/api/v1/events/log";
const read = { method: "GET", permission: "events:read" } as const;
const TEXT = (what: string) => ({ 200: { "text/plain": what } });

export const eventLogOperations = {
  log: {
    operationId: "events.log",
    method: "POST",
    path: LOG_PATH,
    permission: "events:create",
    summary: "Logs an event of the caller, in its project.",
    headers: ["Idempotency-Key"],
    body: logRequest,
    replies: { 200: json(loggedSchema) },
  },
  keys: {
    ...read,
    operationId: "events.keys",
    path: `${LOG_PATH}/keys`,
    summary: "The name of the event log, and the public keys of its checkpoints.",
    replies: { 200: json(keysSchema) },
  },
  rotateKey: {
    operationId: "events.rotateKey",
    method: "POST",
    path: `${LOG_PATH}/keys`,
    permission: "cluster:admin",
    summary: "Has later checkpoints signed by a new key, and the next one by both.",
    replies: { 200: json(keysSchema) },
  },
  shred: {
    operationId: "events.shred",
    method: "POST",
    path: `${LOG_PATH}/shred`,
    permission: "cluster:admin",
    summary:
      "Removes the key of a subject: its personal data in events cannot be read any more, and every proof still holds.",
    body: shredRequest,
    replies: { 200: json(shreddedSchema) },
  },
  checkpoint: {
    ...read,
    operationId: "events.checkpoint",
    path: `${LOG_PATH}/checkpoint`,
    summary: "The newest checkpoint of the event log: a signed note of C2SP tlog-checkpoint.",
    query: checkpointQuery,
    replies: TEXT("a signed note"),
  },
  proof: {
    ...read,
    operationId: "events.proof",
    path: `${LOG_PATH}/proofs/{sequence}`,
    summary: "Proves that an event is in the log, by the newest checkpoint: C2SP tlog-proof.",
    replies: TEXT("a proof"),
  },
  entry: {
    ...read,
    operationId: "events.entry",
    path: `${LOG_PATH}/entries/{sequence}`,
    summary: "The bytes of an event, which proofs are about.",
    replies: { 200: { "application/octet-stream": "CloudEvents in JSON" } },
  },
  cosign: {
    operationId: "events.cosign",
    method: "POST",
    path: `${LOG_PATH}/cosignatures`,
    permission: "events:create",
    summary: "Adds signatures of the witnesses of `--event-witnesses` to a kept checkpoint.",
    body: cosignRequest,
    replies: { 200: json(cosignedSchema) },
  },
  tile: {
    ...read,
    operationId: "events.tile",
    path: `${LOG_PATH}/tile/{path*}`,
    summary:
      "Hashes of the tree, or events below `entries/`, as C2SP tlog-tiles; for callers of the whole cluster.",
    replies: { 200: { "application/octet-stream": "a tile or a bundle of entries" } },
  },
  consistency: {
    ...read,
    operationId: "events.consistency",
    path: `${LOG_PATH}/consistency`,
    summary: "Proves that the log of one size is the beginning of the log of another.",
    query: z.object({ from: treeSize("The smaller size."), to: treeSize("The larger size.") }),
    replies: { 200: json(consistencySchema) },
  },
  export: {
    ...read,
    operationId: "events.export",
    path: `${LOG_PATH}/export`,
    summary:
      "Events with their proofs, for `heddle events verify`; for callers of the whole cluster.",
    query: exportQuery,
    replies: { 200: { "application/x-ndjson": z.looseObject({}) } },
  },
  query: {
    operationId: "events.query",
    method: "GET",
    path: LOG_PATH,
    permission: "events:read",
    summary: "The event log: a list, or a stream with `Accept: text/event-stream`.",
    query: logQuery,
    readsState: true,
    headers: ["Last-Event-ID"],
    replies: {
      200: { ...json(logPageSchema), "text/event-stream": { message: logEventSchema } },
    },
  },
} as const satisfies Record<string, ApiOperation>;

/** The tags of a call, as its `X-Event-Tags` has them; what is no tag is left out. */
export function tagsOf(header: string): string[] {
  const tags = header.split(",", MAX_TAGS).map((each) => each.trim());
  return tags.filter((each) => TAG.test(each));
}
