import { z } from "zod";
import { type ApiOperation, type DataOf, json } from "../operation.ts";
import { pageQuery, pageSchema } from "../parameters.ts";

const USAGE_GROUPS = ["day", "key", "project", "model"] as const;
export type UsageGroup = (typeof USAGE_GROUPS)[number];

const EXPECTED_GROUPS = `expected some of ${USAGE_GROUPS.join(",")}`;
const date = z.iso.date("expected a date such as 2026-11-26").optional();
const name = z.string("expected one value").max(200).optional();

const usageQuery = pageQuery.extend({
  start: date.describe("The first day, in UTC; 29 days before the last one if absent."),
  end: date.describe("The last day; today if absent."),
  group_by: z
    .string(EXPECTED_GROUPS)
    .transform((text) => text.split(","))
    .pipe(z.array(z.enum(USAGE_GROUPS, EXPECTED_GROUPS)).max(USAGE_GROUPS.length))
    .optional()
    .describe("Comma-separated `day`, `key`, `project`, `model`; `day` if absent."),
  key: name.describe("Only calls of the key with this id."),
  project: name.describe("Only calls of this project."),
  model: name.describe("Only calls of this model."),
});

const nullableName = z.string().nullable();

const usageSumSchema = z
  .object({
    object: z.literal("usage"),
    id: z.string(),
    start_time: z.int().describe("In seconds since the epoch."),
    end_time: z.int().describe("Excluded."),
    api_key_id: nullableName,
    project_id: nullableName,
    model: nullableName,
    num_model_requests: z.int(),
    num_failed_requests: z.int().describe("Among `num_model_requests`."),
    input_tokens: z.int(),
    input_cached_tokens: z.int().describe("Among `input_tokens`."),
    output_tokens: z.int(),
    cost: z.number().describe("By the prices when the calls began."),
  })
  .meta({
    id: "UsageSum",
    description: "What calls have used; members that it is not grouped by are null.",
  });

export type UsageView = DataOf<typeof usageSumSchema>;

export const usageOperations = {
  list: {
    operationId: "usage.list",
    method: "GET",
    path: "/api/v1/usage",
    permission: "authenticated",
    summary:
      "Sums the usage of calls by day, key, project and model, of the projects in which the caller has permissions.",
    query: usageQuery,
    readsState: true,
    replies: { 200: json(pageSchema(usageSumSchema)) },
  },
} as const satisfies Record<string, ApiOperation>;
