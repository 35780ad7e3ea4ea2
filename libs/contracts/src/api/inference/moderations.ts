import { AppError } from "@heddle/base/errors";
import { z } from "zod";
import { invalid } from "../../chat-constraints.ts";
import { validate } from "../../validation.ts";
import { type ApiOperation, type DataOf, json } from "../operation.ts";

/** OpenAI's, in the order of the heads. */
export const MODERATION_CATEGORIES = [
  "harassment",
  "harassment/threatening",
  "hate",
  "hate/threatening",
  "illicit",
  "illicit/violent",
  "self-harm",
  "self-harm/intent",
  "self-harm/instructions",
  "sexual",
  "sexual/minors",
  "violence",
  "violence/graphic",
] as const;

const MAX_INPUTS = 32;
/** The most characters of all inputs together: some seconds of one thread's time. */
const MAX_CHARS = 16 * 1024;

/** The name of a served model that moderates, alone or as `moderation-judge:MODEL`. */
export const JUDGE = "moderation-judge";
const MAX_JUDGE_CHARS = 256;

/** OpenAI's names, which its clients send by default, mean the same model. */
const localName = z.enum([
  "moderation-local",
  "omni-moderation-latest",
  "omni-moderation-2024-09-26",
  "text-moderation-latest",
  "text-moderation-stable",
]);

const judgeName = z
  .string()
  .max(MAX_JUDGE_CHARS)
  .regex(/^moderation-judge(:.+)?$/);

const modelName = z.union([localName, judgeName]);

const part = z.object({
  type: z.literal("text", "only text is moderated"),
  text: z.string(),
});

const moderationRequest = z
  .object({
    model: modelName
      .nullish()
      .describe(
        "`moderation-local`, by any of these names; `moderation-judge`, or `moderation-judge:MODEL` with a served chat model.",
      ),
    input: z
      .union([
        z.string(),
        z.array(z.string()).min(1, "expected at least one input").max(MAX_INPUTS),
        z.array(part).min(1).max(MAX_INPUTS),
      ])
      .describe("A text, texts, or the parts of one text."),
  })
  .meta({ id: "CreateModerationRequest" });

export type ModerationRequest = z.infer<typeof moderationRequest>;

function byCategory<Schema extends z.ZodType>(schema: Schema) {
  return z.object(
    Object.fromEntries(MODERATION_CATEGORIES.map((category) => [category, schema])) as Record<
      (typeof MODERATION_CATEGORIES)[number],
      Schema
    >,
  );
}

const moderationResponse = z
  .object({
    id: z.string(),
    model: z.string(),
    results: z.array(
      z.object({
        flagged: z.boolean().describe("Whether any category holds."),
        categories: byCategory(z.boolean()),
        category_scores: byCategory(z.number()),
        category_applied_input_types: byCategory(z.array(z.literal("text"))),
      }),
    ),
  })
  .meta({ id: "CreateModerationResponse" });

export type ModerationAnswer = DataOf<typeof moderationResponse>;

/** Parses a body; throws an AppError that names the first fault in `param`. */
export function parseModerationRequest(body: unknown): ModerationRequest {
  checkModel(Object(body).model);
  const request = validate(moderationRequest, body);
  const chars = moderationTexts(request).reduce((sum, { length }) => sum + length, 0);
  if (chars <= MAX_CHARS) return request;
  throw invalid("input", `it has ${chars} characters, and at most ${MAX_CHARS} are moderated`);
}

/** The texts that get a result each. */
export function moderationTexts({ input }: ModerationRequest): string[] {
  if (typeof input === "string") return [input];
  const parts = input.flatMap((each) => (typeof each === "string" ? [] : [each.text]));
  return parts.length > 0 ? [parts.join("\n")] : (input as string[]);
}

/** Whether a served model is asked. */
export function asksJudge({ model }: Pick<ModerationRequest, "model">): boolean {
  return model != null && judgeName.safeParse(model).success;
}

function checkModel(model: unknown): void {
  if (typeof model !== "string" || modelName.safeParse(model).success) return;
  const message = `The model \`${model.slice(0, 100)}\` does not moderate; use \`moderation-local\`, or \`${JUDGE}:MODEL\` with a chat model.`;
  throw new AppError("model_not_found", message, { param: "model" });
}

export const moderationOperations = {
  create: {
    operationId: "createModeration",
    method: "POST",
    path: "/api/v1/moderations",
    permission: "inference:create",
    summary: "Scores texts by thirteen categories of harm.",
    body: moderationRequest,
    replies: { 200: json(moderationResponse) },
  },
} as const satisfies Record<string, ApiOperation>;
