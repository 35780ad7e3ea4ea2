import { z } from "zod";
import { type ApiOperation, type DataOf, json } from "../operation.ts";
import { time } from "../parameters.ts";

const linkSchema = z
  .object({
    object: z.literal("sign_in_link"),
    code: z.string().describe("Redeemed once, at the master that has created it."),
    expires_at: time,
  })
  .meta({ id: "SignInLink", description: "A code that signs a browser in as the caller, once." });

export type SignInLink = DataOf<typeof linkSchema>;

const signInRequest = z.strictObject({ code: z.string().min(1).max(200) }).meta({ id: "SignIn" });

const signedInSchema = z
  .object({
    object: z.literal("signed_in"),
    token: z.string().describe("The key or token of the caller that has created the link."),
  })
  .meta({ id: "SignedIn" });

export type SignedIn = DataOf<typeof signedInSchema>;

/** Links with which a browser signs in without a pasted key. */
export const signInOperations = {
  createLink: {
    operationId: "access.createSignInLink",
    method: "POST",
    path: "/api/v1/access/sign-in-links",
    permission: "authenticated",
    summary: "Creates a code that signs a browser in as the caller, once, within an hour.",
    replies: { 200: json(linkSchema) },
  },
  signIn: {
    operationId: "access.signIn",
    method: "POST",
    path: "/api/v1/access/sign-in",
    permission: "public",
    summary: "Redeems the code of a sign-in link.",
    body: signInRequest,
    replies: { 200: json(signedInSchema) },
  },
} as const satisfies Record<string, ApiOperation>;
