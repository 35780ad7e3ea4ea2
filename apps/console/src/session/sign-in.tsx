import type { Heddle } from "@heddle/client/heddle";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { STRINGS } from "../strings.ts";
import { ErrorNote } from "../ui/error-note.tsx";
import {
  goToProvider,
  leaveProvider,
  openSessionClient,
  type ProviderSession,
  readProviderSession,
} from "./provider-session.ts";
import { openClient } from "./session.ts";

interface SignInOptions {
  /** Whether a session has ended without a sign-out. */
  readonly hasEnded: boolean;
  /** `onLeave` ends the session where it is kept. Rejects where the caller is refused. */
  readonly onSignedIn: (open: OpenClient, onLeave?: () => Promise<void>) => Promise<void>;
}

/** A client of the caller's calls, in a project or in its own. */
export type OpenClient = (project?: string) => Heddle;

/** Asks for an API key and checks it. */
export function SignIn({ hasEnded, onSignedIn }: SignInOptions) {
  const [key, setKey] = useState("");
  const [isChecking, setChecking] = useState(false);
  const [error, setError] = useState<unknown>();
  const signIn = async (askKey: () => Promise<string>) => {
    setChecking(true);
    setError(undefined);
    try {
      const key = await askKey();
      await onSignedIn((project) => openClient(key, project));
    } catch (thrown) {
      setError(thrown);
      setChecking(false);
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (key.trim() === "") setError(new Error(STRINGS.signIn.noKey));
    else void signIn(async () => key.trim());
  };
  const [provider, setProvider] = useState<ProviderSession>();
  const redeem = useRef(() => {
    const code = takeFragment(CODE);
    if (code !== undefined) {
      void signIn(async () => (await openClient("").access.signIn(code)).token);
      return;
    }
    if (takeFragment(FAILED) !== undefined) setError(new Error(STRINGS.signIn.failed));
    const found = readProviderSession();
    found.then(setProvider, () => undefined);
    found.then((session) => resume(session, onSignedIn)).catch(setError);
  });
  useEffect(() => redeem.current(), []);
  return (
    <main className="sign-in">
      <form onSubmit={submit} className="card">
        <h1>{STRINGS.signIn.title}</h1>
        {hasEnded && <p role="status">{STRINGS.signIn.ended}</p>}
        <label>
          {STRINGS.signIn.key}
          <input
            type="password"
            autoComplete="off"
            spellCheck={false}
            value={key}
            onChange={(event) => setKey(event.target.value)}
          />
        </label>
        <p className="muted">{STRINGS.signIn.hint}</p>
        {error !== undefined && <ErrorNote error={error} />}
        <button type="submit" className="primary" disabled={isChecking}>
          {isChecking ? STRINGS.signIn.checking : STRINGS.signIn.submit}
        </button>
        {provider?.sign_in && <ProviderButton issuer={provider.issuer} />}
      </form>
    </main>
  );
}

function ProviderButton({ issuer }: Pick<ProviderSession, "issuer">) {
  return (
    <button type="button" onClick={goToProvider} title={issuer}>
      {STRINGS.signIn.provider}
    </button>
  );
}

/** Continues the session that this browser has with the identity provider's help, if it has one. */
async function resume(
  { signed_in, csrf }: ProviderSession,
  onSignedIn: SignInOptions["onSignedIn"],
): Promise<void> {
  if (!signed_in || csrf === undefined) return;
  await onSignedIn(
    (project) => openSessionClient(csrf, project),
    () => leaveProvider(csrf),
  );
}

const CODE = /^#sign-in=([\w-]+)$/;

const FAILED = /^#sign-in-failed=([\w-]+)$/;

/** What the address says after its `#`, which leaves it and the history at once. */
function takeFragment(form: RegExp): string | undefined {
  const code = form.exec(location.hash)?.[1];
  if (code !== undefined) history.replaceState(history.state, "", location.pathname);
  return code;
}
