import { z } from "zod";
import { BUDGET_PERIODS, LIMITED_KINDS, MAX_BUDGET, MAX_PRICE } from "../../limits.ts";
import { type ApiOperation, type DataOf, json } from "../operation.ts";
import { pageQuery, pageSchema, projectName, stateQuery } from "../parameters.ts";

const count = z.int().min(1).max(1_000_000_000);
const thousandths = (most: number) =>
  z.number().min(0).max(most).multipleOf(0.001, "expected a multiple of 0.001");

const budget = z.strictObject({
  amount: thousandths(MAX_BUDGET).describe("In the currency of the prices."),
  period: z.enum(BUDGET_PERIODS).describe("A day or a month in UTC, or all time."),
});

/** The members of a key's, a project's or a model's limits. */
export const limitMembers = {
  requests_per_minute: count.optional().describe("Calls in a minute."),
  tokens_per_minute: count.optional().describe("Tokens of models in a minute."),
  concurrency: count.optional().describe("Calls at once."),
  budget: budget.optional(),
};

const setLimitsRequest = z
  .strictObject({
    ...limitMembers,
    prices: z
      .strictObject({
        input: thousandths(MAX_PRICE).default(0),
        output: thousandths(MAX_PRICE).default(0),
      })
      .optional()
      .describe("Of a model: what a million tokens cost."),
  })
  .meta({ id: "LimitSettings" });

/** Limits of a key, project or model, and prices of a model; absent ones are removed. */
export type LimitSettings = z.input<typeof setLimitsRequest>;

const limit = z.int().nullable();

/** Limits as replies have them; null is unlimited. */
export const limitsSchema = z.object({
  requests_per_minute: limit,
  tokens_per_minute: limit,
  concurrency: limit,
  budget: z.object({ amount: z.number(), period: z.enum(BUDGET_PERIODS) }).nullable(),
});

export type LimitsView = DataOf<typeof limitsSchema>;

const limitedSchema = limitsSchema
  .extend({
    object: z.literal("limits"),
    id: z.string().describe("As `project:team-a`."),
    kind: z.enum(LIMITED_KINDS),
    name: z.string().describe("A key's id, a project's name or a model's id."),
    project: z.string().nullable().describe("Whose model it is; null for one of the cluster."),
    prices: z
      .object({ input: z.number(), output: z.number() })
      .nullable()
      .describe("Of a million tokens; null where none are set."),
  })
  .meta({ id: "Limits", description: "The limits of a key, a project or a model." });

export type LimitedView = DataOf<typeof limitedSchema>;

const ofProject = projectName
  .optional()
  .describe("Whose model it is: the limits of a model of the cluster if absent.");

export const limitOperations = {
  list: {
    operationId: "limits.list",
    method: "GET",
    path: "/api/v1/limits",
    permission: "cluster:read",
    summary: "Lists the keys, projects and models that have limits or prices.",
    query: pageQuery,
    readsState: true,
    replies: { 200: json(pageSchema(limitedSchema)) },
  },
  get: {
    operationId: "limits.get",
    method: "GET",
    path: "/api/v1/limits/{kind}/{name}",
    permission: "cluster:read",
    summary: "Shows the limits of a key, project or model.",
    query: stateQuery.extend({ project: ofProject }),
    readsState: true,
    replies: { 200: json(limitedSchema) },
  },
  set: {
    operationId: "limits.set",
    method: "PUT",
    path: "/api/v1/limits/{kind}/{name}",
    permission: "cluster:admin",
    summary: "Replaces the limits of a key, project or model, and the prices of a model.",
    query: z.object({ project: ofProject }),
    headers: ["Idempotency-Key"],
    body: setLimitsRequest,
    replies: { 200: json(limitedSchema) },
  },
} as const satisfies Record<string, ApiOperation>;
