import { z } from "zod";
import { PROJECT_NAME } from "../roles.ts";

/** Query parameters and list formats that several operations share. */

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
