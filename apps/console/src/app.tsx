import { grants } from "@heddle/auth/scopes";
import { AuthenticationError, HeddleError } from "@heddle/client/errors";
import type { CallerView } from "@heddle/contracts/api/access/bindings";
import { QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { liveEvents } from "./data/live-events.ts";
import { CALM_MS } from "./data/queries.ts";
import { loadPages, router } from "./routes.tsx";
import { SESSION_PROOF } from "./session/provider-session.ts";
import { type ConsoleSession, SessionContext } from "./session/session.ts";
import { type OpenClient, SignIn } from "./session/sign-in.tsx";

/** Lists are read again at most this often, however many events there are. */
const REFRESH_MS = 1_000;
/** After a sign-in the first page has this time before the code of the others is loaded. */
const LOAD_PAGES_MS = 1_000;

/** A browser that is not on the Internet may be on the machine of a master. */
const NETWORK_MODE = "always";

interface SignedIn extends ConsoleSession {
  readonly queries: QueryClient;
}

/** The sign-in, and after it the pages. */
export function App() {
  const [session, setSession] = useState<SignedIn>();
  const [hasEnded, setEnded] = useState(false);
  const signIn = async (open: OpenClient, onLeave?: () => Promise<void>) => {
    const end = (isEnded: boolean) => {
      setEnded(isEnded);
      setSession(undefined);
    };
    const signOut = async () => {
      // The sign-in would find the session open again before it has ended, or where it could not end.
      await onLeave?.();
      end(false);
    };
    const enter = async (project?: string): Promise<void> => {
      const heddle = open(project);
      const self = await heddle.access.whoami();
      const usable = project ?? firstUsable(self);
      if (usable !== project) return enter(usable);
      const queries = newQueries(() => end(true));
      setSession({ heddle, self, queries, signOut, enter });
    };
    await enter();
  };
  useEffect(() => session && follow(session), [session]);
  useEffect(() => {
    const timer = session && setTimeout(() => void loadPages(), LOAD_PAGES_MS);
    return () => clearTimeout(timer);
  }, [session]);
  if (!session) return <SignIn hasEnded={hasEnded} onSignedIn={signIn} />;
  return (
    <SessionContext value={session}>
      <QueryClientProvider client={session.queries}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </SessionContext>
  );
}

/** The first of the caller's projects where its own is not one of them; undefined otherwise. */
function firstUsable({ project, projects }: CallerView): string | undefined {
  return projects?.includes(project) ? undefined : projects?.toSorted()[0];
}

function newQueries(onRefused: () => void): QueryClient {
  return new QueryClient({
    queryCache: new QueryCache({
      onError: (error) => {
        if (error instanceof AuthenticationError || isOfOtherSession(error)) onRefused();
      },
    }),
    defaultOptions: {
      queries: {
        networkMode: NETWORK_MODE,
        // The client of the API retries already; here a page waits for a master that comes back.
        retry: false,
        refetchInterval: ({ state }) => (isPassing(state.error) ? CALM_MS : false),
        staleTime: 1_000,
      },
      mutations: { networkMode: NETWORK_MODE },
    },
  });
}

function isPassing(error: Error | null): boolean {
  return error instanceof HeddleError && (error.retryable || error.status === undefined);
}

/** Another tab has signed in again: this browser's cookie is of that session. */
function isOfOtherSession(error: Error): boolean {
  const ofHeader = `#/${SESSION_PROOF}`;
  return error instanceof HeddleError && error.errors.some(({ pointer }) => pointer === ofHeader);
}

/** Reads again what events have changed, until the session ends. */
function follow({ heddle, self, queries }: SignedIn): () => void {
  const end = new AbortController();
  const changed = new Set<string>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const refresh = () => {
    timer = undefined;
    for (const key of changed) {
      // Reading a list of many pages might never end if each event cancelled it.
      const options = { cancelRefetch: key !== "nodes" };
      void queries.invalidateQueries({ queryKey: [key] }, options);
    }
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
