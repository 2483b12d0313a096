/**
 * The start of the command line against `node -e 0`, both in turns on the same machine: the least
 * of many runs, because other load only adds time. Set-up has bundled the command line. A control
 * plane with 1,000 projects answers over loopback.
 */
import { spawnSync } from 'node:child_process';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient } from '@berth/wire/client';
import { repositoryRoot } from '@berth/testbed/config';
import { freePort } from '@berth/testbed/ports';
import { service } from '@berth/testbed/platform';

const ROUNDS = 15;
const PROJECTS = 1_000;
const GOAL_START = 3;
const ADMIN = { email: 'admin@example.com', password: 'the password of the benchmark' };

export async function benchCli(): Promise<string[]> {
  const dir = await mkdtemp(join(tmpdir(), 'berth-bench-'));
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const berth = join(repositoryRoot, 'bin', 'berth');
  const controlPlane = service('control-plane', dir, `${url}/readyz`, ['control-plane'], {
    LISTEN: `127.0.0.1:${port}`,
    DATABASE_URL: `sqlite:${join(dir, 'berth.db')}`,
    BASE_DOMAIN: 'berth.localhost',
    ADMIN_EMAILS: ADMIN.email,
    ADMIN_PASSWORD: ADMIN.password,
    LOG_LEVEL: 'warn',
  });
  try {
    await mkdir(join(dir, 'logs'));
    await controlPlane.start();
    const { token } = await createClient({ baseUrl: url }).call('login', { body: ADMIN });
    const api = createClient({
      baseUrl: url,
      headers: () => ({ authorization: `Bearer ${token}` }),
    });
    for (let i = 0; i < PROJECTS; i++) {
      const name = `project-${i}`;
      await api.call('createProject', {
        body: { name, git_url: `https://git.example.com/${name}.git`, domain_prefix: name },
      });
    }
    const cases = {
      empty: [process.execPath, '-e', '0'],
      start: [process.execPath, berth, '--version'],
      status: [process.execPath, berth, 'status', 'project-7'],
      list: [process.execPath, berth, 'project', 'list'],
    };
    const env = { PATH: process.env['PATH'], HOME: dir, BERTH_URL: url, BERTH_TOKEN: token };
    const least: Record<string, number> = {};
    for (let round = 0; round < ROUNDS; round++)
      for (const [name, [program = '', ...args]] of Object.entries(cases)) {
        const from = performance.now();
        const { status, stderr } = spawnSync(program, args, { env, encoding: 'utf8' });
        const took = performance.now() - from;
        if (status !== 0) throw new Error(`${name}: exit ${status}: ${stderr}`);
        least[name] = Math.min(least[name] ?? Number.POSITIVE_INFINITY, took);
      }
    const ratio = (name: string): number => (least[name] ?? 0) / (least['empty'] ?? 1);
    const line = (what: string, name: string, goal: string): string =>
      `cli: ${what}: ${ratio(name).toFixed(2)} x an empty Node (${least[name]?.toFixed(0)} ms, ` +
      `empty ${least['empty']?.toFixed(0)} ms)${goal}`;
    return [
      line(
        'start',
        'start',
        ` [goal <= ${GOAL_START} x: ${ratio('start') <= GOAL_START ? 'ok' : 'MISSED'}]`,
      ),
      line('status of a project', 'status', ''),
      line(`project list with ${PROJECTS} projects`, 'list', ''),
    ];
  } finally {
    await controlPlane.stop();
    await rm(dir, { recursive: true, force: true });
  }
}
