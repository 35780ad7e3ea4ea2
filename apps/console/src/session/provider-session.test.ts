// holds: console-oidc

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { IdentityProvider } from "@heddle/auth/oidc/testing/identity-provider";
import { freePort } from "@heddle/base/testing/free-ports";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CHROMIUM, ConsoleRig, NEEDS_CHROMIUM } from "../../test/browser.ts";

const SECRET = "console-secret-of-the-test";
/** The life of a token: pages renew theirs meanwhile. */
const TOKEN_SECONDS = 20;

describe.skipIf(!CHROMIUM)(`the sign-in with an identity provider${NEEDS_CHROMIUM}`, () => {
  const rig = new ConsoleRig();
  let provider: IdentityProvider;
  beforeAll(async () => {
    const issuerPort = await freePort();
    const { promise, resolve } = Promise.withResolvers<IdentityProvider>();
    // Both need the other's address before they start.
    rig.authFileOf = (url) => {
      const [file, secret] = [join(rig.folder, "auth.json"), join(rig.folder, "secret")];
      writeFileSync(secret, SECRET);
      const started = IdentityProvider.start(url, issuerPort, TOKEN_SECONDS);
      started.then(resolve);
      const issuer = `http://127.0.0.1:${issuerPort}`;
      const console = { public_url: url, client_id: "heddle-console", client_secret_file: secret };
      const bindings = [{ kind: "user", subject: "alice", role: "operator" }];
      const oauth2 = { issuer, audience: "urn:heddle:api", console };
      writeFileSync(file, JSON.stringify({ method: "oauth2", oauth2, rbac: { bindings } }));
      return file;
    };
    await rig.start("--masters", "1", "--parameter-servers", "0");
    provider = await promise;
  });
  afterAll(async () => {
    await rig.close();
    await provider?.close();
  });

  it("leads to the asked page, outlives a reload, and ends with the sign-out", async () => {
    const page = await rig.open("/console/nodes");
    await page.getByRole("button", { name: "Sign in with the identity provider" }).click();
    const title = page.getByRole("heading", { level: 1, name: "Nodes" });
    await rig.shown(title);
    expect(new URL(page.url()).pathname).toBe("/console/nodes");
    await page.reload();
    await rig.shown(title);
    const seen = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])";
    expect(await page.evaluate(seen)).toBe('[{},{},""]');
    const cookies = await page.context().cookies(rig.url);
    const [session] = cookies.filter(({ name }) => name === "heddle_session");
    expect(session).toMatchObject({ httpOnly: true, sameSite: "Strict" });
    // The provider's own pages load what no test has.
    expect(rig.errors).toEqual([]);
    const logout = "**/console/session/logout";
    await page.route(logout, (route) => route.abort());
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByText(/You are still signed in/).waitFor();
    await page.unroute(logout);
    rig.errors.length = 0;
    const asked: string[] = [];
    page.on("request", (request) => asked.push(new URL(request.url()).pathname));
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.waitForURL(`${provider.issuer}/**`);
    // The session is not resumed while it ends.
    expect(asked).toContain("/console/session/logout");
    expect(asked).not.toContain("/api/v1/access/whoami");
    const again = await page.context().newPage();
    await again.goto(`${rig.url}/console/nodes`);
    await again.getByLabel("API key").waitFor();
    await page.context().close();
  });

  it("another tab that signs in again takes the open one along", async () => {
    const page = await rig.open("/console/nodes");
    const title = page.getByRole("heading", { level: 1, name: "Nodes" });
    await page.getByRole("button", { name: "Sign in with the identity provider" }).click();
    await rig.shown(title);
    const other = await page.context().newPage();
    const isResumed = page.waitForResponse(`${rig.url}/console/session`);
    await other.goto(`${rig.url}/console/session/login?to=/console/jobs`);
    await rig.shown(other.getByRole("heading", { level: 1, name: "Jobs" }));
    await isResumed;
    await rig.shown(title);
    await page.getByText("worker-1").first().waitFor();
    // The calls of the session before were refused.
    rig.errors.length = 0;
    await page.context().close();
  });

  it("an expired one ends on the open page, which says so and signs in again", async () => {
    const page = await rig.open("/console/nodes");
    const signIn = page.getByRole("button", { name: "Sign in with the identity provider" });
    const title = page.getByRole("heading", { level: 1, name: "Nodes" });
    await signIn.click();
    await rig.shown(title);
    await provider.endGrants();
    await rig.shown(page.getByText(/The session has ended/));
    expect(await title.count()).toBe(0);
    rig.errors.length = 0;
    await signIn.click();
    await rig.shown(title);
    expect(rig.errors).toEqual([]);
    await page.context().close();
  });
});
