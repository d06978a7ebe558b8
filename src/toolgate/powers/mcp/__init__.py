"""The client for MCP servers that others wrote: a program that we start, or an address that we reach.

| module      | what                                                                            |
|-------------|---------------------------------------------------------------------------------|
| messages    | one JSON-RPC message as bytes, out and in                                        |
| failures    | how a call to an upstream can fail                                               |
| bounds      | how much an upstream may send, and how fast                                      |
| transport   | what a session needs of a transport                                              |
| stdio       | lines over the pipes of a child                                                  |
| supervisor  | the small program between us and a child: no process of it outlives us           |
| sandbox     | confining a child with bubblewrap                                                |
| children    | starting and ending a child through its supervisor                               |
| http, sse   | requests over guarded connections                                                |
| session     | which era an upstream speaks; requests, lists and calls in that era              |
| health      | when to try again                                                                |
| upstream    | one upstream for all callers: connects when needed, recovers, tells in doubt     |
| relay       | hearing of changes, and connections on which a caller may be asked something     |
"""
