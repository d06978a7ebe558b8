// Calls every listed tool with an argument that there is not, after listTools: the answer must pass the SDK's own check of the
// advertised output schema. The major version of the SDK is the word on the command line.
import { server, tell, tried } from './steps.mjs'

const where = await server()
const old = process.argv[2] === '1'
const { Client } = await import(old ? '@modelcontextprotocol/sdk/client/index.js' : '@modelcontextprotocol/client')
const { StreamableHTTPClientTransport } = await import(
  old ? '@modelcontextprotocol/sdk/client/streamableHttp.js' : '@modelcontextprotocol/client')
const headers = { Authorization: `Bearer ${where.key}` }
const client = new Client({ name: 'toolgate-tests', version: '1' })
await client.connect(new StreamableHTTPClientTransport(new URL(where.url), { requestInit: { headers } }))

const told = {}
for (const { name } of (await client.listTools()).tools) {
  told[name] = await tried(async () => {
    const result = await client.callTool({ name, arguments: { nosuch: 1 } })
    return { isError: result.isError === true, text: result.content[0].text }
  })
}
tell(told)
