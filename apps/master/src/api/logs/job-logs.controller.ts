import { isUtf8 } from "node:buffer";
import type { KeyObject } from "node:crypto";
import type { ServerResponse } from "node:http";
import { jobOperations, type LogEntry, type LogsQuery } from "@heddle/contracts/api/job-operations";
import { Controller, Inject, Param, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { HEARTBEAT_MS } from "../../config/config.ts";
import { PEPPER } from "../../control-plane/control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { ProjectSecrets } from "../../control-plane/project-secrets.ts";
import type { CallerRequest } from "../../http/access.ts";
import { responseDrained } from "../../http/drained.ts";
import { EventStream } from "../../http/event-stream.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { Serves } from "../../http/serves.ts";
import { type LogCursor, writeCursor } from "../../task-output/log-cursor.ts";
import type { LogItem } from "../../task-output/log-lines.ts";
import type { OutputStream } from "../../task-output/log-name.ts";
import { type LogBatch, LogReader } from "../../task-output/log-reader.ts";
import { requireLogsOf } from "../jobs/job-access.ts";
import { logQuery } from "./log-query.ts";

/** `GET /jobs/{id}/logs`: plain text, or lines with their origin as ndjson or server-sent events. */
@Controller()
export class JobLogsController {
  readonly #reader: LogReader;
  readonly #pepper: KeyObject;
  readonly #control: ControlPlane;
  readonly #secrets: ProjectSecrets;

  constructor(
    @Inject(LogReader) reader: LogReader,
    @Inject(PEPPER) pepper: KeyObject,
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(ProjectSecrets) secrets: ProjectSecrets,
  ) {
    this.#reader = reader;
    this.#pepper = pepper;
    this.#control = control;
    this.#secrets = secrets;
  }

  @Serves(jobOperations.logs)
  async logs(
    @Param("id") id: string,
    @Query() query: LogsQuery,
    @Req() request: CallerRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    requireLogsOf(this.#control.state, id, requestCaller(request));
    const accept = request.headers.accept ?? "";
    const resumed = request.headers["last-event-id"];
    const cursor = resumed ? String(resumed) : query.cursor;
    const asked = logQuery(id, query, cursor, this.#pepper);
    const gone = new AbortController();
    // Read before the head is sent, so that a refusal still has its status.
    const batches = await this.#reader.read(asked, gone.signal);
    reply.hijack();
    const { raw } = reply;
    raw.once("close", () => gone.abort());
    const output = accept.includes("text/event-stream")
      ? this.#events(raw)
      : this.#lines(raw, accept.includes("application/x-ndjson"));
    try {
      for await (const batch of batches) await output.write(this.#withoutSecrets(id, batch));
      output.end();
    } catch (error) {
      // The head is sent: only a broken stream can report the error.
      raw.destroy(error instanceof Error ? error : undefined);
    }
  }

  #withoutSecrets(id: string, batch: LogBatch): LogBatch {
    const spec = this.#control.state.specs.get(id);
    if (!spec?.secret_variables) return batch;
    const hidden = this.#secrets.hiddenOf(spec);
    const items = batch.items.map((item) => ({ ...item, text: hidden.hideBytes(item.text) }));
    return { ...batch, items };
  }

  #lines(raw: ServerResponse, isStructured: boolean): Output {
    raw.writeHead(200, {
      "content-type": isStructured ? "application/x-ndjson" : "text/plain; charset=utf-8",
      "cache-control": "no-cache, no-transform",
      "x-accel-buffering": "no",
    });
    raw.flushHeaders();
    let isAtLineStart = true;
    return {
      write: async ({ items, cursor }) => {
        const text = isStructured
          ? this.#structured(items, cursor).join("")
          : plain(items, isAtLineStart);
        isAtLineStart = items.at(-1)?.ended ?? isAtLineStart;
        if (!raw.write(text)) await responseDrained(raw);
      },
      end: () => raw.end(),
    };
  }

  #events(raw: ServerResponse): Output {
    const stream = new EventStream(raw, { heartbeatMs: HEARTBEAT_MS, onOpen: () => ({}) });
    // The head is sent before the first line, however long that takes.
    stream.write(": logs\n\n");
    return {
      write: async ({ items, cursor }) => {
        const lines = this.#structured(items, cursor);
        // The cursor follows the whole batch: an earlier id would lead back into it.
        const last = lines.length - 1;
        const id = `id: ${writeCursor(cursor, this.#pepper)}\n`;
        const events = lines.map((line, i) => `${i === last ? id : ""}data: ${line.trimEnd()}\n\n`);
        if (!stream.write(events.join(""))) await stream.drained();
      },
      end: () => stream.end("event: end\ndata: {}\n\n"),
    };
  }

  /** One JSON object per line; the last one has the cursor after all of them. */
  #structured(items: readonly LogItem[], cursor: LogCursor): string[] {
    return items.map((item, i) => {
      const { attempt, rank, incarnation = 0 } = item.name;
      // The query asks for no other.
      const stream = item.name.stream as OutputStream;
      const place = { attempt, rank, incarnation, stream, offset: item.offset };
      const at = { ...place, time: new Date(item.unixMs).toISOString() };
      const what: LogEntry =
        item.gapBytes > 0
          ? { type: "gap", ...at, bytes: item.gapBytes }
          : {
              type: "line",
              ...at,
              text: item.text.toString(),
              // JSON text cannot hold invalid UTF-8, as a character cut in half.
              ...(!isUtf8(item.text) && { base64: item.text.toString("base64") }),
              ...(!item.ended && { partial: true as const }),
            };
      const isLast = i === items.length - 1;
      return `${JSON.stringify(isLast ? { ...what, cursor: writeCursor(cursor, this.#pepper) } : what)}\n`;
    });
  }
}

interface Output {
  write(batch: LogBatch): Promise<void>;
  end(): void;
}

/** The bytes as they were written; a gap is a line of its own. */
function plain(items: readonly LogItem[], isAtLineStart: boolean): Buffer {
  return Buffer.concat(
    items.flatMap(({ text, ended, gapBytes, name }, i) => {
      if (gapBytes > 0) {
        const { stream, rank } = name;
        const isCut = !(items[i - 1]?.ended ?? isAtLineStart);
        return [
          Buffer.from(
            `${isCut ? "\n" : ""}[heddle: ${gapBytes} bytes of ${stream} of rank ${rank} were dropped]\n`,
          ),
        ];
      }
      return ended ? [text, lineEnd] : [text];
    }),
  );
}

const lineEnd = Buffer.from("\n");
