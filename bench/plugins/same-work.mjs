import { definePlugin, z } from "heddle/plugin-kit";

// The work of GET /api/v1/access/whoami, as a route of a plugin.

const caller = z.object({
  object: z.literal("caller"),
  id: z.string(),
  name: z.string(),
  project: z.string(),
  permissions: z.array(z.string()),
});

/** A plugin with this route, under a name of its own. */
export function sameWork(name) {
  return definePlugin({
    name,
    version: "1.0.0",
    apiVersion: 1,
    capabilities: ["routes"],
    setup({ routes }) {
      routes.add({
        method: "GET",
        path: "/whoami",
        permission: "authenticated",
        summary: "Shows who calls, and what it may do.",
        reply: caller,
        handle: ({ caller: { id, name: own, project, permissions } }) => {
          return { object: "caller", id, name: own, project, permissions };
        },
      });
    },
  });
}
