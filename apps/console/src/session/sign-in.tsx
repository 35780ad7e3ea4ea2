import type { Heddle } from "@heddle/client/heddle";
import type { CallerView } from "@heddle/contracts/api/access/bindings";
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
  /** `onLeave` ends the session where it is kept. */
  readonly onSignedIn: (heddle: Heddle, self: CallerView, onLeave?: () => Promise<void>) => void;
}

/** Asks for an API key and checks it. */
export function SignIn({ hasEnded, onSignedIn }: SignInOptions) {
  const [key, setKey] = useState("");
  const [isChecking, setChecking] = useState(false);
  const [error, setError] = useState<unknown>();
  const signIn = async (askKey: () => Promise<string>) => {
    setChecking(true);
    setError(undefined);
    try {
      const heddle = openClient(await askKey());
      onSignedIn(heddle, await heddle.access.whoami());
    } catch (thrown) {
      setError(thrown);
      setChecking(false);
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (key.trim() === "") setError(new Error(STRINGS.signIn.noKey));
    else void signIn(async () => key);
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
    found.then(resumed).then((session) => session && onSignedIn(...session), setError);
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

/** The session that this browser has with the identity provider's help, if it has one. */
async function resumed({ signed_in, csrf }: ProviderSession) {
  if (!signed_in || csrf === undefined) return undefined;
  const heddle = openSessionClient(csrf);
  return [heddle, await heddle.access.whoami(), () => leaveProvider(csrf)] as const;
}

const CODE = /^#sign-in=([\w-]+)$/;

const FAILED = /^#sign-in-failed=([\w-]+)$/;

/** What the address says after its `#`, which leaves it and the history at once. */
function takeFragment(form: RegExp): string | undefined {
  const code = form.exec(location.hash)?.[1];
  if (code !== undefined) history.replaceState(history.state, "", location.pathname);
  return code;
}
