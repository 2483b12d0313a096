/** `berth mcp`: answers an assistant's questions through the Model Context Protocol. */
import { chooseAddress } from '../session/choose.ts';
import { type Command, textOf } from './command.ts';

export const MCP_COMMANDS: readonly Command[] = [
  {
    name: 'mcp',
    summary:
      'Serve the Model Context Protocol: an assistant asks what needs attention, what happened ' +
      'and why',
    detail:
      'Without --http, the protocol runs on standard input and output with the rights of the ' +
      'person who is signed in. With --http, each request carries a ' +
      'personal API token of Berth as a Bearer token and acts with its rights. The tools only ' +
      'read, unless --allow-changes is given and the role of the token allows changes.',
    options: [
      { flags: '--allow-changes', doc: 'also offer deploy and rollback' },
      {
        flags: '--http [host:port]',
        doc: 'streamable HTTP instead of standard input and output (default: 127.0.0.1:7332)',
      },
    ],
    routes: ['me'],
    async run(cli, _, options) {
      const allowChanges = options['allowChanges'] === true;
      // Load the SDK here, because it is large and no other command needs it.
      const { serveHttp, serveStdio } = await import('../mcp/serve.ts');
      if (options['http'] === undefined) return serveStdio(cli, allowChanges);
      const { url } = chooseAddress(cli.io, cli.context);
      const server = await serveHttp(cli, url, {
        listen: textOf(options, 'http') ?? '127.0.0.1:7332',
        allowChanges,
      });
      cli.tell(`berth mcp listens at ${server.address} for ${url}`);
      await new Promise<void>((resolve) =>
        cli.io.interrupted.addEventListener('abort', () => resolve(), { once: true }),
      );
      await server.close();
    },
  },
];
