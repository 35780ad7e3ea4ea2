import { isJsonObject } from "@heddle/base/json-object";
import { z } from "zod";
import { PROJECT_NAME } from "../roles.ts";

/** Parameters, maps, lists and list formats that several operations share. */

/** The name of a project. */
export const projectName = z
  .string()
  .regex(PROJECT_NAME, "expected 1 to 63 of a-z, 0-9, `.`, `_` and `-`");

/** A whole number in a query. */
export function integerParameter(
  minimum: number,
  maximum: number,
  expected = `expected ${minimum} to ${maximum}`,
) {
  return z
    .string(expected)
    .regex(/^\d{1,9}$/, expected)
    .transform(Number)
    .pipe(z.int().min(minimum, expected).max(maximum, expected));
}

/** `true` or `false` in a query. */
export function booleanParameter(trueTexts: readonly string[], falseTexts: readonly string[]) {
  return z
    .enum([...trueTexts, ...falseTexts], "expected `true` or `false`")
    .transform((text) => trueTexts.includes(text))
    .pipe(z.boolean())
    .default(false);
}

/** The items of a page: 100 unless the caller says otherwise. */
const pageLimit = integerParameter(1, 1_000).default(100).describe("Maximum number of items.");

export const consistency = z
  .enum(["strong", "stale"], "expected `strong` or `stale`")
  .default("stale")
  .describe(
    "`strong` includes every change made before the call, on any master; `stale` answers immediately from the state of the answering master.",
  );

/** The query of a paged list. */
export const pageQuery = z.object({
  limit: pageLimit,
  cursor: z
    .string("expected one value")
    .max(2_048)
    .optional()
    .describe("The `next_cursor` of the page before."),
  consistency,
});

/** The query of an operation that reads the replicated state. */
export const stateQuery = z.object({ consistency });

/** One page of a list. */
export function pageSchema<Item extends z.ZodType>(item: Item) {
  return z.object({
    object: z.literal("list"),
    data: z.array(item),
    has_more: z.boolean(),
    next_cursor: z.string().nullable().describe("The `cursor` of the next page; null on the last."),
  });
}

/** A whole list. */
export function listSchema<Item extends z.ZodType>(item: Item) {
  return z.object({ object: z.literal("list"), data: z.array(item) });
}

/** A time in ISO 8601 UTC. */
export const time = z.iso.datetime();

/** A page of read-only items, in the format of `pageSchema`. */
export interface Page<Item> {
  readonly object: "list";
  readonly data: readonly Item[];
  readonly has_more: boolean;
  readonly next_cursor: string | null;
}

/** A map whose length is checked before any entry: a schema makes a fault of each wrong one. */
export function boundedRecord<Key extends z.ZodType<string>, Value extends z.ZodType>(
  key: Key,
  value: Value,
  max: number,
) {
  const map = z.record(key, value);
  const counted = (given: z.input<typeof map>, context: z.RefinementCtx) => {
    if (fieldNamesOf(given).length > max) context.addIssue(`expected at most ${max} entries`);
    return given;
  };
  return z.preprocess(counted, map);
}

/** The same of a list. */
export function boundedArray<Item extends z.ZodType>(item: Item, max: number) {
  const list = z.array(item).max(max);
  const counted = (given: z.input<typeof list>, context: z.RefinementCtx) => {
    if (Array.isArray(given) && given.length > max)
      context.addIssue(`expected at most ${max} items`);
    return given;
  };
  return z.preprocess(counted, list);
}

/** The names of an object's fields; none of what is no object. */
export function fieldNamesOf(given: unknown): readonly string[] {
  return isJsonObject(given) ? Object.keys(given) : [];
}
