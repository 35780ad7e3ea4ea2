import { AppError } from "@heddle/base/errors";
import {
  type SignedIn,
  type SignInLink,
  signInOperations,
} from "@heddle/contracts/api/access/sign-in";
import { Controller, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { tokenOf } from "../../http/identity/authenticator.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { SignInLinks } from "./sign-in-links.ts";

/** Signs browsers in with links that work once, as `npm start` prints one. */
@Controller()
export class SignInController {
  readonly #links = new SignInLinks();

  @Serves(signInOperations.createLink)
  createLink(
    @Req() { headers }: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): SignInLink {
    refuseNarrowed(headers);
    const { code, expiresAtMs } = this.#links.create(tokenOf(headers), Date.now());
    reply.header("cache-control", "no-store");
    return { object: "sign_in_link", code, expires_at: new Date(expiresAtMs).toISOString() };
  }

  @Serves(signInOperations.signIn)
  signIn(@Req() request: CallerRequest, @Res({ passthrough: true }) reply: FastifyReply): SignedIn {
    const { code } = bodyOf(signInOperations.signIn, request);
    const token = this.#links.redeem(code, Date.now());
    if (token === undefined) {
      const message =
        "This sign-in link was used already, has expired, or is of another master. Paste an API key, or start again for a new link.";
      throw new AppError("not_found", message);
    }
    reply.header("cache-control", "no-store");
    return { object: "signed_in", token };
  }
}

/** A link hands over the caller's own key, with rights that a narrowed call does not have. */
function refuseNarrowed(headers: CallerRequest["headers"]): void {
  const param = "X-Heddle-Role";
  if (headers["x-heddle-role"] === undefined) return;
  const message = `A link would sign in with all rights of the caller, and '${param}' limits this call: leave the header out.`;
  throw new AppError("permission_denied", message, { param });
}
