/** Makes commands from one row of the route table: summary, options, request and output. */
import { defined } from '@berth/kit/defined';
import type { CallInput } from '@berth/wire/client';
import type { Route } from '@berth/wire/route';
import { type AnswerOf, ROUTES, type RouteName } from '@berth/wire/routes';
import { confirmed } from '../ask.ts';
import type { Cli } from '../cli.ts';
import { usage } from '../problem.ts';
import { allPages } from '../project/pages.ts';
import { type Column, table } from '../output/text.ts';
import { type Argument, argument, type Command, type Option } from './command.ts';
import { flagsOf } from './flags.ts';
import { positive } from './number.ts';

type ListName = {
  [N in RouteName]: AnswerOf<N> extends { items: unknown[]; next_cursor: string | null }
    ? N
    : never;
}[RouteName];
type ItemOf<N extends ListName> = AnswerOf<N> extends { items: (infer T)[] } ? T : never;

/** Lists all pages, or the first `--limit` items. Other fields of the query become options. */
export function listCommand<N extends ListName>(
  route: N,
  given: { name: string; empty: string; columns: (cli: Cli) => readonly Column<ItemOf<N>>[] },
): Command {
  const row: Route = ROUTES[route];
  const filters = flagsOf(row.query ?? { properties: {} }, { leaveOut: ['limit', 'cursor'] });
  return {
    name: given.name,
    summary: row.summary,
    options: [
      ...filters.options,
      { flags: '-n, --limit <number>', doc: 'at most this many (default: all)', parse: positive },
    ],
    routes: [route],
    async run(cli, _, options) {
      const limit = options['limit'] as number | undefined;
      const query = { limit: Math.min(limit ?? 200, 200), ...filters.read(options) };
      type Page = { items: ItemOf<N>[]; next_cursor: string | null };
      const items = await allPages(
        async (cursor) =>
          (await cli.client().call(route, {
            query: { ...query, ...cursor },
          } as unknown as CallInput<N>)) as unknown as Page,
        limit,
      );
      cli.print({ items }, () =>
        items.length === 0 ? given.empty : table(items, given.columns(cli)),
      );
    },
  };
}

/** A command for one resource: its argument. Fields of the query and body become options. */
export function memberCommand<N extends RouteName>(
  route: N,
  given: {
    name: string;
    subject: Argument;
    options?: readonly Option[];
    body?: unknown;
    docs?: Record<string, string>;
    /** Returns the question to ask before the request. `--yes` skips the question. */
    question?: (named: string, query: Record<string, unknown>) => string;
    text: (cli: Cli, answer: AnswerOf<N>) => string;
  },
): Command {
  const row: Route = ROUTES[route];
  const docs = given.docs === undefined ? {} : { docs: given.docs };
  const query = flagsOf(row.query ?? { properties: {} }, docs);
  const body = given.body === undefined ? null : flagsOf(given.body, docs);
  return {
    name: given.name,
    summary: row.summary,
    args: [given.subject],
    options: [...query.options, ...(body?.options ?? []), ...(given.options ?? [])],
    routes: [route],
    async run(cli, args, options) {
      const id = argument(args, 0);
      const fields = body?.read(options);
      if (fields !== undefined && Object.keys(fields).length === 0 && row.bodyOptional !== true)
        throw usage('nothing was given to change', `berth ${given.name} --help`);
      const asked = query.read(options);
      if (given.question !== undefined)
        await confirmed(cli.io, options['yes'] === true, given.question(id, asked));
      const input = {
        params: { id },
        query: asked,
        ...defined({ body: fields }),
      };
      const answer = await cli.client().call(route, input as unknown as CallInput<N>);
      cli.print(answer ?? { done: true }, () => given.text(cli, answer));
    },
  };
}
