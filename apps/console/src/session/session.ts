import { grants } from "@heddle/auth/scopes";
import { Heddle } from "@heddle/client/heddle";
import type { CallerView } from "@heddle/contracts/api/access/bindings";
import type { Permission } from "@heddle/contracts/api/permission";
import { useQuery } from "@tanstack/react-query";
import { createContext, useContext } from "react";
import { selfQuery } from "../data/queries.ts";

/** A signed-in tab. A pasted key is in the client alone; a session is in a cookie that scripts cannot read. */
export interface ConsoleSession {
  readonly heddle: Heddle;
  /** Who has signed in, and what it could do then. */
  readonly self: CallerView;
  /** From then on calls act in that project of the caller. */
  readonly enter: (project: string) => Promise<void>;
  readonly signOut: () => Promise<void>;
}

export const SessionContext = createContext<ConsoleSession | undefined>(undefined);

/** The session of a page below the sign-in. */
export function useSession(): ConsoleSession {
  const session = useContext(SessionContext);
  if (!session) throw new Error("a page is shown without a session");
  return session;
}

/** The caller, with what it may do now. */
export function useSelf(): CallerView {
  const { heddle, self } = useSession();
  return useQuery(selfQuery(heddle, self)).data;
}

/** Whether the caller may do that; what it may not is not offered. */
export function useMay(permission: Permission): boolean {
  return grants(useSelf().permissions, permission);
}

/** A client of the master that served this page, in a project; without one in the caller's own. */
export function openClient(key: string, project?: string): Heddle {
  return new Heddle({ endpoint: location.origin, auth_token: key, project });
}
