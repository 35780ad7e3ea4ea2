import { z } from "zod";
import { type ApiOperation, type DataOf, json } from "../operation.ts";
import { consistency, integerParameter, pageSchema, time } from "../parameters.ts";

/** A place in the event log. */
const sequenceText = z
  .string("expected one value")
  .regex(/^\d{1,15}$/, "expected the `sequence` of an event");

/** An event of the log: CloudEvents 1.0 in JSON. */
const logEventSchema = z
  .object({
    specversion: z.literal("1.0"),
    id: z.string().describe("With `source` it identifies the event."),
    source: z.string(),
    type: z.string().describe("As `MODEL_TRAINING_START`, `MODEL_DEPLOYMENT` or `DATA_ACCESS`."),
    subject: z.string().describe("What it is about, as `jobs/ID`."),
    time,
    datacontenttype: z.literal("application/json"),
    sequence: z.string().describe("Its place in the log, from 0 on; the same on all masters."),
    recordedtime: time.describe("When it was recorded; it never goes back."),
    project: z.string().optional().describe("Absent for events of the whole cluster."),
    result: z.string().optional(),
    userid: z.string().optional().describe("Who asked for it: `key:ID` or `user:SUBJECT`."),
    sessionid: z.string().optional(),
    requestid: z.string().optional().describe("The `X-Request-Id` of the call."),
    clientaddress: z.string().optional(),
    compliancelevel: z.string().optional(),
    tags: z.string().optional().describe("Separated by commas."),
    data: z.record(z.string(), z.unknown()),
  })
  .meta({ id: "LogEvent", description: "An event of the event log, as CloudEvents 1.0." });

export type LogEvent = DataOf<typeof logEventSchema>;

const logPageSchema = pageSchema(logEventSchema).meta({ id: "LogEventPage" });

export type LogEventPage = DataOf<typeof logPageSchema>;

const text = (max: number) => z.string("expected one value").min(1).max(max).optional();
const moment = z.iso.datetime({ offset: true, error: "expected a time, as 2026-01-31T12:00:00Z" });

const logQuery = z.object({
  type: text(500).describe("Types, separated by commas."),
  project: text(63).describe("Events of that project."),
  subject: text(512).describe("The subject, or the beginning of it before a final `*`."),
  user: text(256).describe("The `userid`."),
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

export const eventLogOperations = {
  query: {
    operationId: "events.query",
    method: "GET",
    path: "/api/v1/events/log",
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
