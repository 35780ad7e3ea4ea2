import type { Heddle } from "@heddle/client/heddle";
import type { CallerView } from "@heddle/contracts/api/access/bindings";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { STRINGS } from "../strings.ts";
import { ErrorNote } from "../ui/error-note.tsx";
import { openClient } from "./session.ts";

interface SignInOptions {
  /** Whether a session has ended without a sign-out. */
  readonly hasEnded: boolean;
  readonly onSignedIn: (heddle: Heddle, self: CallerView) => void;
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
  const redeem = useRef(() => {
    const code = takeCode();
    if (code === undefined) return;
    void signIn(async () => (await openClient("").access.signIn(code)).token);
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
      </form>
    </main>
  );
}

const CODE = /^#sign-in=([\w-]+)$/;

/** The code of a sign-in link, which leaves the address and the history at once. */
function takeCode(): string | undefined {
  const code = CODE.exec(location.hash)?.[1];
  if (code !== undefined) history.replaceState(history.state, "", location.pathname);
  return code;
}
