// A real authorization server (oidc-provider) and, on the same origin, an MCP server that takes its tokens.
// node authority.mjs MODULES TOKEN_SECONDS: prints its address, then serves. GET /counts tells what was asked of it.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, seconds] = process.argv.slice(2);
const { Provider } = await import(pathToFileURL(createRequire(`${modules}/`).resolve("oidc-provider")).href);
const counts = { refresh_token: 0, authorization_code: 0, registrations: 0, calls: 0 };
const server = createServer();
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const origin = `http://127.0.0.1:${server.address().port}`;

// A client id metadata document that somebody publishes. Nothing else is fetched.
const published = "https://gate.example.org/client.json";
const metadata = {
  client_id: published,
  client_name: "Toolgate",
  application_type: "native",
  redirect_uris: ["http://127.0.0.1/callback"],
  grant_types: ["authorization_code", "refresh_token"],
  response_types: ["code"],
  token_endpoint_auth_method: "none",
};

const provider = new Provider(origin, {
  fetch: async (url) => {
    if (String(url) !== published) throw new Error("nothing is there");
    return new Response(JSON.stringify(metadata), { headers: { "content-type": "application/json" } });
  },
  cookies: { keys: ["test"] },
  scopes: ["openid", "offline_access"],
  pkce: { required: () => true },
  rotateRefreshToken: true,
  ttl: { AccessToken: Number(seconds), RefreshToken: 3600, Interaction: 600, Session: 600, Grant: 3600, DeviceCode: 600 },
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: true },
    revocation: { enabled: true },
    deviceFlow: { enabled: true },
    clientIdMetadataDocument: { enabled: true, ack: "draft-02" },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => undefined,
      useGrantedResource: () => true,
      getResourceServerInfo: (_ctx, resource) => {
        if (resource !== `${origin}/mcp`) throw new Error("no such resource");
        return { scope: "mcp", audience: resource, accessTokenFormat: "opaque", accessTokenTTL: Number(seconds) };
      },
    },
  },
});
provider.on("grant.success", (ctx) => (counts[ctx.oidc.params.grant_type] = (counts[ctx.oidc.params.grant_type] ?? 0) + 1));
provider.on("registration_create.success", () => counts.registrations++);

const json = (response, status, body, headers = {}) => {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
};

async function mcp(request, response) {
  const token = (request.headers.authorization ?? "").replace(/^Bearer /, "");
  const found = token && (await provider.AccessToken.find(token));
  if (!found || found.isExpired || found.aud !== `${origin}/mcp`) {
    const where = `${origin}/.well-known/oauth-protected-resource/mcp`;
    return json(response, 401, { error: "invalid_token" }, { "www-authenticate": `Bearer resource_metadata="${where}"` });
  }
  let text = "";
  for await (const piece of request) text += piece;
  const message = JSON.parse(text || "{}");
  if (message.id === undefined) return response.writeHead(202).end();
  const results = {
    initialize: {
      protocolVersion: "2025-11-25",
      capabilities: { tools: {} },
      serverInfo: { name: "guarded", version: "1" },
    },
    "tools/list": { tools: [{ name: "echo", description: "Says it.", inputSchema: { type: "object" } }] },
    "tools/call": { content: [{ type: "text", text: "said" }] },
  };
  if (message.method === "tools/call") counts.calls++;
  const result = results[message.method];
  const error = { code: -32601, message: "Method not found" };
  json(response, 200, { jsonrpc: "2.0", id: message.id, ...(result ? { result } : { error }) });
}

const callback = provider.callback();
server.on("request", (request, response) => {
  const path = request.url.split("?")[0];
  if (path === "/counts") return json(response, 200, counts);
  if (path === "/mcp") return mcp(request, response);
  if (path === "/.well-known/oauth-protected-resource/mcp")
    return json(response, 200, { resource: `${origin}/mcp`, authorization_servers: [origin], scopes_supported: ["mcp"] });
  return callback(request, response);
});
console.log(origin);
