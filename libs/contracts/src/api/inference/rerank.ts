import { z } from "zod";
import { validate } from "../../validation.ts";
import { type ApiOperation, type DataOf, json } from "../operation.ts";

/** Documents of one request, as Cohere has it. */
const MAX_DOCUMENTS = 1000;

const text = z.string().min(1, "expected some text");

const rerankRequest = z
  .object({
    model: z.string().min(1).max(200).describe("A rerank model, or one that gives embeddings."),
    query: text,
    documents: z
      .array(z.union([text, z.object({ text })]))
      .min(1)
      .max(MAX_DOCUMENTS),
    top_n: z.int().min(1).nullish().describe("How many of the best are answered; all if absent."),
    return_documents: z.boolean().nullish().describe("With the documents' texts; false if absent."),
    user: z.string().max(512).nullish(),
  })
  .meta({ id: "RerankRequest" });

export type RerankRequest = z.infer<typeof rerankRequest>;

const rerankResponse = z
  .object({
    model: z.string(),
    method: z
      .enum(["rank", "cosine"])
      .describe("The rerank model's own score, from 0 to 1; or the cosine of embeddings."),
    results: z
      .array(
        z.object({
          index: z.int().describe("The document's place in the request."),
          relevance_score: z.number(),
          document: z.object({ text: z.string() }).optional(),
        }),
      )
      .describe("The most relevant first."),
    usage: z.object({ prompt_tokens: z.int(), total_tokens: z.int() }),
  })
  .meta({ id: "RerankResponse" });

export type RerankAnswer = DataOf<typeof rerankResponse>;

/** Parses a body; throws an AppError that names the first fault in `param`. */
export function parseRerankRequest(body: unknown): RerankRequest {
  return validate(rerankRequest, body);
}

export const rerankOperations = {
  create: {
    operationId: "rerank",
    method: "POST",
    path: "/api/v1/rerank",
    permission: "inference:create",
    summary: "Orders documents by their relevance to a query.",
    headers: ["X-Heddle-Priority"],
    body: rerankRequest,
    replies: { 200: json(rerankResponse) },
  },
} as const satisfies Record<string, ApiOperation>;
