/**
 * Requests several hosts at a steady rate and compares each answer with the page of the host's own
 * project.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { waitFor } from '@berth/testbed/wait';

export type HostLoad = {
  sent: number;
  right: number;
  /** Requests without an answer, or with a status other than 200. */
  none: number;
  /** Answers of another project. */
  wrong: string[];
};
export type Hosts = {
  /** The text on the page of each project, by the prefix of its host. */
  pages: ReadonlyMap<string, RegExp>;
  get: (prefix: string) => Promise<{ status: number; body: string }>;
};

/** Returns what the page shows, or null without an answer of an application. */
const shownAt = ({ get }: Hosts, prefix: string): Promise<string | null> =>
  get(prefix).then(
    ({ status, body }) => (status === 200 ? body.trim() : null),
    () => null,
  );

/** `wrong` is called for each answer of another project. */
function startHostLoad(
  hosts: Hosts,
  {
    perSecond,
    wrong = () => undefined,
  }: { perSecond: number; wrong?: (prefix: string, shown: string) => void },
): { stop(): Promise<HostLoad> } {
  const load: HostLoad = { sent: 0, right: 0, none: 0, wrong: [] };
  const open = new Set<Promise<void>>();
  let isOver = false;
  async function once(prefix: string, own: RegExp): Promise<void> {
    load.sent += 1;
    const shown = await shownAt(hosts, prefix);
    if (shown === null) load.none += 1;
    else if (own.test(shown)) load.right += 1;
    else {
      load.wrong.push(`${prefix} showed ${shown}`);
      wrong(prefix, shown);
    }
  }
  const loops = [...hosts.pages].map(async ([prefix, own]) => {
    while (!isOver) {
      const request = once(prefix, own);
      open.add(request);
      void request.finally(() => open.delete(request));
      await sleep(1_000 / perSecond);
    }
  });
  return {
    async stop() {
      isOver = true;
      await Promise.all([...loops, ...open]);
      return load;
    },
  };
}

/** Requests every host while `during` runs, and until all of them show their own page again. */
export async function underLoad(
  hosts: Hosts,
  during: () => Promise<unknown>,
  options: Parameters<typeof startHostLoad>[1],
): Promise<HostLoad> {
  const load = startHostLoad(hosts, options);
  const isRight = async ([prefix, own]: [string, RegExp]): Promise<boolean> =>
    own.test((await shownAt(hosts, prefix)) ?? '');
  try {
    await during();
    await waitFor(
      'every host shows its own project again',
      async () => (await Promise.all([...hosts.pages].map(isRight))).every(Boolean),
      {
        deadlineMs: 90_000,
      },
    );
  } finally {
    await load.stop();
  }
  return load.stop();
}

export const loadText = ({ sent, right, none, wrong }: HostLoad): string =>
  `${sent} requests: ${right} answers of the own project, ${none} without an answer, ` +
  `${wrong.length} of another project`;
