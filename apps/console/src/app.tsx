import { grants } from "@heddle/auth/scopes";
import { AuthenticationError } from "@heddle/client/errors";
import type { Heddle } from "@heddle/client/heddle";
import type { CallerView } from "@heddle/contracts/api/access/bindings";
import { QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { liveEvents } from "./data/live-events.ts";
import { router } from "./routes.tsx";
import { type ConsoleSession, SessionContext } from "./session/session.ts";
import { SignIn } from "./session/sign-in.tsx";

/** Lists are read again at most this often, however many events there are. */
const REFRESH_MS = 1_000;

interface SignedIn extends ConsoleSession {
  readonly queries: QueryClient;
}

/** The sign-in, and after it the pages. */
export function App() {
  const [session, setSession] = useState<SignedIn>();
  const [hasEnded, setEnded] = useState(false);
  const signIn = (heddle: Heddle, self: CallerView, onLeave?: () => Promise<void>) => {
    const end = (isEnded: boolean) => {
      setEnded(isEnded);
      setSession(undefined);
    };
    const queries = newQueries(() => end(true));
    const signOut = async () => {
      // The sign-in would find the session open again before it has ended, or where it could not end.
      await onLeave?.();
      end(false);
    };
    setSession({ heddle, self, queries, signOut });
  };
  useEffect(() => session && follow(session), [session]);
  if (!session) return <SignIn hasEnded={hasEnded} onSignedIn={signIn} />;
  return (
    <SessionContext value={session}>
      <QueryClientProvider client={session.queries}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </SessionContext>
  );
}

function newQueries(onRefused: () => void): QueryClient {
  return new QueryClient({
    queryCache: new QueryCache({
      onError: (error) => {
        if (error instanceof AuthenticationError) onRefused();
      },
    }),
    // The client of the API retries already.
    defaultOptions: { queries: { retry: false, staleTime: 1_000 } },
  });
}

/** Reads again what events have changed, until the session ends. */
function follow({ heddle, self, queries }: SignedIn): () => void {
  const end = new AbortController();
  const changed = new Set<string>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const refresh = () => {
    timer = undefined;
    for (const key of changed) void queries.invalidateQueries({ queryKey: [key] });
    changed.clear();
  };
  const forget = liveEvents.listen((events) => {
    for (const { type } of events) changed.add(type === "job" ? "jobs" : "nodes");
    timer ??= setTimeout(refresh, REFRESH_MS);
  });
  if (grants(self.permissions, "jobs:read")) void liveEvents.follow(heddle, end.signal);
  return () => {
    end.abort();
    forget();
    clearTimeout(timer);
    queries.clear();
  };
}
