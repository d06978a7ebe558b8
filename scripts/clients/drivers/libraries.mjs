// Agent libraries in JavaScript, each used as its own documentation shows. The library is the word on the command line.
import { drive } from './steps.mjs'

const bearer = (where) => ({ Authorization: `Bearer ${where.key}` })
const program = (where) => ({ command: where.command[0], args: where.command.slice(1), env: where.env })

function among(tools, name) {
  if (!tools[name]) throw new Error('not offered')
  return tools[name]
}

function said(result) {
  if (typeof result === 'string') return { isError: false, text: result }
  if (Array.isArray(result)) return { isError: false, text: result.map((each) => each.text ?? JSON.stringify(each)).join(' ') }
  const text = (result.content ?? []).map((each) => each.text).join(' ')
  return { isError: result.isError === true, text: text || JSON.stringify(result) }
}

const libraries = {
  async 'ai-sdk'(where) {
    const { createMCPClient } = await import('@ai-sdk/mcp')
    const { Experimental_StdioMCPTransport: Stdio } = await import('@ai-sdk/mcp/mcp-stdio')
    const transport = where.url ? { type: 'http', url: where.url, headers: bearer(where) } : new Stdio(program(where))
    const tools = await (await createMCPClient({ transport })).tools()
    return { names: Object.keys(tools), call: async (name, args) => said(await among(tools, name).execute(args, { toolCallId: '1', messages: [] })) }
  },
  async 'langchain-js'(where) {
    const { MultiServerMCPClient } = await import('@langchain/mcp-adapters')
    const entry = where.url ? { transport: 'http', url: where.url, headers: bearer(where) } : { transport: 'stdio', ...program(where) }
    const found = await new MultiServerMCPClient({ mcpServers: { toolgate: entry } }).getTools()
    const tools = Object.fromEntries(found.map((tool) => [tool.name, tool]))
    return { names: Object.keys(tools), call: async (name, args) => said(await among(tools, name).invoke(args)) }
  },
  async mastra(where) {
    const { MCPClient } = await import('@mastra/mcp')
    const entry = where.url ? { url: new URL(where.url), requestInit: { headers: bearer(where) } } : program(where)
    const found = await new MCPClient({ servers: { toolgate: entry } }).listTools()
    const tools = Object.fromEntries(Object.entries(found).map(([name, tool]) => [name.replace(/^toolgate_/, ''), tool]))
    return { names: Object.keys(tools), call: async (name, args) => said(await among(tools, name).execute(args, {})) }
  },
  async 'openai-agents-js'(where) {
    const { MCPServerStdio, MCPServerStreamableHttp } = await import('@openai/agents')
    const connected = where.url
      ? new MCPServerStreamableHttp({ url: where.url, requestInit: { headers: bearer(where) }, timeout: 30000 })
      : new MCPServerStdio({ ...program(where), timeout: 30000 })
    await connected.connect()
    const names = (await connected.listTools()).map((tool) => tool.name)
    return { names, call: async (name, args) => said(await connected.callTool(name, args)) }
  },
}

await drive(libraries[process.argv[2]], { sdk: false })
