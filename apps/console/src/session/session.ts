import { grants } from "@heddle/auth/scopes";
import { Heddle } from "@heddle/client/heddle";
import type { CallerView } from "@heddle/contracts/api/access/bindings";
import type { Permission } from "@heddle/contracts/api/permission";
import { createContext, useContext } from "react";

/** A signed-in tab. A pasted key is in the client alone; a session is in a cookie that scripts cannot read. */
export interface ConsoleSession {
  readonly heddle: Heddle;
  /** Who has signed in, and what it may do. */
  readonly self: CallerView;
  readonly signOut: () => Promise<void>;
}

export const SessionContext = createContext<ConsoleSession | undefined>(undefined);

/** The session of a page below the sign-in. */
export function useSession(): ConsoleSession {
  const session = useContext(SessionContext);
  if (!session) throw new Error("a page is shown without a session");
  return session;
}

/** Whether the key may do that; what it may not is not offered. */
export function useMay(permission: Permission): boolean {
  return grants(useSession().self.permissions, permission);
}

/** A client of the master that served this page. */
export function openClient(key: string): Heddle {
  return new Heddle({ endpoint: location.origin, auth_token: key });
}
