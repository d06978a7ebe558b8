// The official TypeScript SDK, major 2. After listTools it checks every structured answer against the advertised schema.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { drive } from './steps.mjs'

async function connect(where) {
  const transport = where.url
    ? new StreamableHTTPClientTransport(new URL(where.url), { requestInit: { headers: { Authorization: `Bearer ${where.key}` } } })
    : new StdioClientTransport({ command: where.command[0], args: where.command.slice(1), env: where.env, stderr: 'ignore' })
  const client = new Client({ name: 'toolgate-tests', version: '1' })
  await client.connect(transport)
  const names = (await client.listTools()).tools.map((tool) => tool.name)
  async function call(name, args, options) {
    const result = await client.callTool({ name, arguments: args }, options)
    return { isError: result.isError === true, text: result.content[0].text }
  }
  return { names, call }
}

await drive(connect)
