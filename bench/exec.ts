/**
 * Time from POST of a deployment to its first answer through the proxy, with 50 open exec sessions
 * against none, in turns in one run. Each session echoes a line every half second, and then none.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, type Connection } from '../packages/cli/src/exec/connection.ts';
import { pageApp, startWorld, versionOf, whyNot, type World } from '../test/e2e/world.ts';
import { summary } from './stats.ts';

const SESSIONS = 50;
const ROUNDS = 5;
/** A deployment may take this much longer while sessions are open. */
const GOAL_RATIO = 1.1;
const LINE_MS = 500;

type Open = { connection: Connection; echoed: () => number };

async function openSession({ berth }: World, project: { id: string }): Promise<Open> {
  let echoed = 0;
  const ready = Promise.withResolvers<void>();
  const ticket = await berth.api.call('execProject', {
    params: { id: project.id },
    body: { command: ['cat'] },
  });
  const base = new URL(berth.controlPlane.readyUrl).origin;
  const connection = await connect(base, ticket, {
    async onData(_, bytes) {
      echoed += bytes.length;
    },
    onReady: ready.resolve,
  });
  // The engine starts a command in a tenth of a second or more: the start is not what is measured.
  await Promise.race([ready.promise, connection.ended]);
  return { connection, echoed: () => echoed };
}

async function deployed({ berth }: World, project: { id: string }, version: number) {
  const from = performance.now();
  const asked = await berth.deploy(project);
  const late = AbortSignal.timeout(120_000);
  const answers = async (): Promise<boolean> =>
    versionOf((await berth.get('bench')).body) === version;
  while (!(await answers().catch(() => false))) await sleep(5, undefined, { signal: late });
  const took = performance.now() - from;
  await berth.settled(asked);
  return took;
}

/** Deploys while the sessions are open. Throws if a session did not echo. */
async function besideSessions(
  world: World,
  shell: { id: string },
  deploy: () => Promise<number>,
): Promise<number> {
  const sessions: Open[] = [];
  for (let i = 0; i < SESSIONS; i++) sessions.push(await openSession(world, shell));
  const line = Buffer.from('a line of a person who types\n');
  const typing = setInterval(() => {
    for (const { connection } of sessions) void connection.send(line);
  }, LINE_MS);
  try {
    return await deploy();
  } finally {
    clearInterval(typing);
    for (const { connection } of sessions) connection.close();
    await Promise.allSettled(sessions.map(({ connection }) => connection.ended));
    const silent = sessions.filter(({ echoed }) => echoed() === 0).length;
    if (silent > 0) console.error(`exec: ${silent} of ${SESSIONS} sessions echoed nothing`);
  }
}

export async function benchExec(): Promise<string[]> {
  const reason = await whyNot('built-in');
  if (reason !== undefined) return [`exec: skipped: ${reason}`];
  const world = await startWorld({ proxy: 'built-in', agentEnv: { ALLOW_EXEC: 'true' } });
  try {
    const { berth, git } = world;
    const create = async (name: string) => {
      const { url } = await git.createRepo(name, pageApp(0));
      const project = await berth.createProject({
        name,
        git_url: url,
        domain_prefix: name,
        drain_seconds: 0,
        stop_grace_seconds: 1,
        allow_exec: true,
      });
      await berth.settled(await berth.deploy(project));
      return project;
    };
    const shell = await create('shell');
    const project = await create('bench');
    const [alone, beside]: [number[], number[]] = [[], []];
    let version = 0;
    for (let round = 0; round <= ROUNDS; round++)
      for (const way of round % 2 === 0 ? ['alone', 'beside'] : ['beside', 'alone']) {
        version += 1;
        await git.commit('bench', pageApp(version), `version ${version}`);
        const deploy = (): Promise<number> => deployed(world, project, version);
        const took = way === 'alone' ? await deploy() : await besideSessions(world, shell, deploy);
        // The first round only warms up both.
        if (round > 0) (way === 'alone' ? alone : beside).push(took);
      }
    const [a, b] = [summary(beside), summary(alone)];
    const ratio = a.p50 / b.p50;
    return [
      `exec: deployment beside ${SESSIONS} sessions p50 ${a.p50.toFixed(0)} ms ` +
        `(${a.min.toFixed(0)}-${a.max.toFixed(0)}), alone p50 ${b.p50.toFixed(0)} ms ` +
        `(${b.min.toFixed(0)}-${b.max.toFixed(0)}), ${ROUNDS} rounds in turns`,
      `exec: ratio p50 ${ratio.toFixed(2)}; goal <= ${GOAL_RATIO}: ` +
        (ratio <= GOAL_RATIO ? 'met' : 'MISSED'),
    ];
  } finally {
    await world.stop();
  }
}
