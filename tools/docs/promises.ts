import { parse } from "yaml";
import { z } from "zod";

/** How a promise is held that no test holds. */
const OTHER_CHECKS = ["benchmark", "by hand", "no test", "not built"] as const;
const LONGEST_SENTENCE = 20;

const says = z
  .string()
  .regex(/^[^a-z].*\.$/, "a promise begins with no small letter, and ends with a full stop")
  .refine((text) => text.split(/\s+/).length <= LONGEST_SENTENCE, {
    message: `a promise has at most ${LONGEST_SENTENCE} words`,
  });
const promise = z.preprocess(
  (value) => (typeof value === "string" ? { says: value } : value),
  z
    .strictObject({ says, check: z.enum(OTHER_CHECKS).optional(), why: z.string().optional() })
    .refine(({ check, why }) => why !== undefined || !/benchmark|by hand/.test(check ?? ""), {
      message: "`why` names the benchmark's result, or what was tried by hand",
    }),
);
const areasSchema = z.array(
  z.strictObject({
    area: z.string().min(1),
    promises: z.record(z.string(), promise),
    limits: z.array(z.string().min(1)).default([]),
  }),
);

export type VerificationArea = z.output<typeof areasSchema>[number];
export type HeldPromise = VerificationArea["promises"][string];

/** Reads docs/promises.yaml; throws with the place and the reason where it is malformed. */
export function parsePromises(text: string): VerificationArea[] {
  const result = areasSchema.safeParse(parse(text));
  if (!result.success) throw new Error(z.prettifyError(result.error));
  const ids = result.data.flatMap(({ promises }) => Object.keys(promises));
  const malformed = ids.find((id) => !/^[a-z0-9]+(-[a-z0-9]+)*$/.test(id));
  if (malformed !== undefined) throw new Error(`${malformed}: an id is lower case with hyphens`);
  const repeated = ids.find((id, at) => ids.indexOf(id) !== at);
  if (repeated !== undefined) throw new Error(`two areas have a promise ${repeated}`);
  return result.data;
}
