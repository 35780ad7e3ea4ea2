import { AppError } from "@heddle/base/errors";
import { z } from "zod";
import { validate } from "../validation.ts";
import { checkTokenIds, MAX_TOKEN } from "./inference/token-lists.ts";
import { type ApiOperation, type DataOf, json } from "./operation.ts";

/** Inputs of one request, as OpenAI has it. */
const MAX_EMBEDDING_INPUTS = 2048;
/** Above any model's size of vectors. */
const MAX_DIMENSIONS = 65_536;

const text = z.string().min(1, "expected some text");
const tokens = z.array(z.int().min(0).max(MAX_TOKEN)).min(1, "expected at least one token");

const embeddingRequest = z
  .object({
    model: z.string().min(1).max(200),
    input: z
      .union([
        text,
        z.array(text).min(1, "expected at least one input").max(MAX_EMBEDDING_INPUTS),
        tokens,
        z.array(tokens).min(1).max(MAX_EMBEDDING_INPUTS),
      ])
      .describe("A text, texts, the token ids of a text, or those of several."),
    encoding_format: z.enum(["float", "base64"]).nullish(),
    dimensions: z
      .int()
      .min(1)
      .max(MAX_DIMENSIONS)
      .nullish()
      .describe("The first numbers of each vector, normalised again; at most as many as it has."),
    user: z.string().max(512).nullish(),
  })
  .meta({ id: "CreateEmbeddingRequest" });

export type EmbeddingRequest = z.infer<typeof embeddingRequest>;

const embeddingResponse = z
  .object({
    object: z.literal("list"),
    data: z.array(
      z
        .object({
          object: z.literal("embedding"),
          index: z.int(),
          embedding: z
            .union([z.array(z.number()), z.string()])
            .describe("Of length 1. As base64: 32-bit floats, little-endian."),
        })
        .meta({ id: "Embedding" }),
    ),
    model: z.string(),
    usage: z.object({ prompt_tokens: z.int(), total_tokens: z.int() }),
  })
  .meta({ id: "CreateEmbeddingResponse" });

/** The vectors of a request. */
export type EmbeddingAnswer = DataOf<typeof embeddingResponse>;

/** Parses a body; throws an AppError that names the first fault in `param`. */
export function parseEmbeddingRequest(body: unknown): EmbeddingRequest {
  checkForm(Object(body).input);
  return validate(embeddingRequest, body);
}

/** Checked before the union, whose fault would be that of another form. */
function checkForm(input: unknown): void {
  if (!Array.isArray(input)) return;
  if (typeof input[0] === "number" || input.length <= MAX_EMBEDDING_INPUTS) {
    checkTokenIds("input", input);
    return;
  }
  const message = `Invalid value for 'input': at most ${MAX_EMBEDDING_INPUTS} inputs are allowed, got ${input.length}.`;
  throw new AppError("invalid_value", message, { param: "input" });
}

export const embeddingOperations = {
  create: {
    operationId: "createEmbedding",
    method: "POST",
    path: "/api/v1/embeddings",
    permission: "inference:create",
    summary: "Gives a normalised vector of each input, pooled as the model does it.",
    headers: ["X-Heddle-Priority"],
    body: embeddingRequest,
    replies: { 200: json(embeddingResponse) },
  },
} as const satisfies Record<string, ApiOperation>;
