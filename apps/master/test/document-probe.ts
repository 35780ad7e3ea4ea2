import { rmSync } from "node:fs";
import { createServer, request, type Server } from "node:http";
import { join } from "node:path";
import { json, text } from "node:stream/consumers";
import { isErrorCode, toAppError } from "@heddle/base/errors";
import type { DocumentKind, DocumentRecord, NewDocument } from "@heddle/control/documents/records";
import { MASTER_CONFIG } from "../dist/config/config.module.js";
import { DOCUMENTS } from "../dist/documents/documents.js";
import type { MasterConfig } from "../src/config/config.ts";
import type { DocumentPage, DocumentRange, Documents } from "../src/documents/documents.ts";

/** A call of the port, with the content in base64. */
type ProbeCall =
  | {
      readonly method: "put";
      readonly document: NewDocument;
      readonly content: string;
      readonly expectedVersion?: number;
    }
  | { readonly method: "get" | "delete"; readonly kind: DocumentKind; id: string; owner: string }
  | { readonly method: "list"; readonly kind: DocumentKind; owner: string; range: DocumentRange };

/** Lets a test call the documents of a master in another process, over a socket in its folder. */
export const documentProbe = {
  provide: "DocumentProbe",
  inject: [MASTER_CONFIG, DOCUMENTS],
  useFactory: ({ dataDirectory }: MasterConfig, documents: Documents) =>
    new DocumentProbe(socketOf(dataDirectory), documents),
};

class DocumentProbe {
  readonly #server: Server;

  constructor(socket: string, documents: Documents) {
    this.#server = createServer(async (incoming, reply) => {
      const call = (await json(incoming)) as ProbeCall;
      const result = await answer(documents, call).then(
        (value) => ({ value }),
        (error) => ({ error: toAppError(error).message, code: toAppError(error).code }),
      );
      reply.end(JSON.stringify(result));
    });
    // One that was killed has left its socket.
    rmSync(socket, { force: true });
    this.#server.listen(socket);
  }

  onApplicationShutdown(): void {
    this.#server.close();
  }
}

async function answer(documents: Documents, call: ProbeCall): Promise<unknown> {
  if (call.method === "put") {
    const { document, content, expectedVersion } = call;
    return documents.put(document, Buffer.from(content, "base64"), { expectedVersion });
  }
  if (call.method === "list") return documents.list(call.kind, inDefault(call.owner), call.range);
  const { kind, id } = call;
  const place = inDefault(call.owner);
  if (call.method === "delete") return documents.delete(kind, id, place);
  const found = await documents.get(kind, id, place);
  return found && Buffer.from(found.content).toString("base64");
}

const inDefault = (owner: string) => ({ owner, project: "default" });

/** The documents of a master by its probe; errors are those of the port, as `CODE: MESSAGE`. */
export class ProbedDocuments {
  readonly #socket: string;

  constructor(dataDirectory: string) {
    this.#socket = socketOf(dataDirectory);
  }

  put(document: NewDocument, content: Uint8Array, expectedVersion?: number) {
    const text = Buffer.from(content).toString("base64");
    return this.#call<DocumentRecord>({ method: "put", document, content: text, expectedVersion });
  }

  async get(id: string, owner: string): Promise<Buffer | undefined> {
    const content = await this.#call<string | undefined>({
      method: "get",
      kind: "response",
      id,
      owner,
    });
    return content === undefined ? undefined : Buffer.from(content, "base64");
  }

  delete(id: string, owner: string): Promise<boolean> {
    return this.#call({ method: "delete", kind: "response", id, owner });
  }

  list(owner: string, range: DocumentRange): Promise<DocumentPage> {
    return this.#call({ method: "list", kind: "response", owner, range });
  }

  async #call<Result>(call: ProbeCall): Promise<Result> {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const sent = request({ socketPath: this.#socket, method: "POST" }, (reply) => {
      text(reply).then(resolve, reject);
    });
    sent.on("error", reject).end(JSON.stringify(call));
    const { value, code, error } = JSON.parse(await promise);
    if (isErrorCode(code)) throw new Error(`${code}: ${error}`);
    return value as Result;
  }
}

function socketOf(dataDirectory: string): string {
  return join(dataDirectory, "documents.sock");
}
