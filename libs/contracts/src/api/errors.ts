import { z } from "zod";

/** The error body of the inference API, which is OpenAI's with three further members. */
export const errorResponse = z
  .object({
    error: z
      .object({
        message: z.string(),
        type: z.string(),
        param: z.string().nullable(),
        code: z.string().nullable(),
        request_id: z.string(),
        retryable: z.boolean().describe("Whether the same request may succeed later."),
        node: z.string().optional().describe("The node that failed."),
        model: z.string().optional(),
      })
      .meta({ id: "Error" }),
  })
  .meta({ id: "ErrorResponse", description: "An error of the inference API." });
/** The error body of the orchestration API: problem details of RFC 9457. */
export const problem = z
  .object({
    type: z.string().describe("`urn:heddle:error:` and the code."),
    title: z.string(),
    status: z.int(),
    detail: z.string(),
    instance: z.string(),
    code: z.string(),
    errors: z
      .array(z.object({ pointer: z.string(), code: z.string(), detail: z.string() }))
      .describe("Each fault of a request: a JSON pointer into it, and what is wrong there."),
    request_id: z.string(),
    retryable: z.boolean().describe("Whether the same request may succeed later."),
  })
  .meta({ id: "Problem", description: "An error of the orchestration API." });
