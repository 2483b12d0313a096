/**
 * npm run test:api: runs schemathesis with all its checks against a running control plane, once as
 * admin and once as viewer. Schemathesis is a Python program in the folder .tools/schemathesis. The
 * last line is `N passed, N failed, N skipped`.
 */
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { messageOf } from '@berth/kit/message-of';
import { findProgram, repositoryRoot, toolsDir } from '@berth/testbed/config';
import { freePort } from '@berth/testbed/ports';
import { run, startProcess, untilReady } from '@berth/testbed/process';
import { createClient } from '@berth/wire/client';

const VERSION = '4.32.5';
const FOLDER = join(toolsDir, 'schemathesis');
const PROGRAM = join(FOLDER, 'bin', 'schemathesis');
const PASSWORD = 'correct horse battery staple';
const ROLES = ['admin', 'viewer'] as const;
type Role = (typeof ROLES)[number];

const { values: options } = parseArgs({
  options: {
    /** Test cases for each operation and phase. */
    examples: { type: 'string', default: '25' },
    seed: { type: 'string', default: '1' },
    /** Runs only this role. */
    role: { type: 'string' },
  },
});

async function install(): Promise<string | null> {
  const stamp = join(FOLDER, `schemathesis-${VERSION}`);
  if (existsSync(stamp)) return null;
  const python = findProgram('python3');
  if (python === undefined)
    return 'python3 is not installed; get it with: apt-get install python3 python3-venv';
  console.log(
    `test:api: installing schemathesis ${VERSION} into .tools/schemathesis (it tests the API ` +
      'against its OpenAPI document) …',
  );
  rmSync(FOLDER, { recursive: true, force: true });
  try {
    await run([python, '-m', 'venv', FOLDER], { deadlineMs: 120_000 });
    await run([join(FOLDER, 'bin', 'pip'), 'install', '--quiet', `schemathesis==${VERSION}`], {
      deadlineMs: 300_000,
    });
  } catch (error) {
    return 'schemathesis could not be installed: ' + messageOf(error);
  }
  writeFileSync(stamp, '');
  return null;
}

/** Returns whether schemathesis found nothing. */
async function tryAs(role: Role): Promise<boolean> {
  const dir = mkdtempSync(join(tmpdir(), 'berth-api-'));
  // The folder of the dataset in the document's example, so that its requests get further than
  // "no share".
  mkdirSync(join(dir, 'share', 'team', 'prices'), { recursive: true });
  writeFileSync(join(dir, 'share', 'team', 'prices', '2026-11.csv'), 'day,price\n');
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const controlPlane = await startProcess([join(repositoryRoot, 'bin', 'berth'), 'control-plane'], {
    name: 'control plane',
    cwd: dir,
    env: {
      LISTEN: `127.0.0.1:${port}`,
      PUBLIC_URL: url,
      BASE_DOMAIN: 'berth.localhost',
      DATABASE_URL: `sqlite:${join(dir, 'berth.db')}`,
      ADMIN_EMAILS: 'admin@example.com',
      ADMIN_PASSWORD: PASSWORD,
      AGENT_SECRET: 'a secret of agents that nobody guesses here',
      GATEWAY_SECRET: 'a secret of gateways that nobody guesses here',
      DATASET_NFS_BASE_PATH: join(dir, 'share'),
      LOG_LEVEL: 'error',
    },
  });
  try {
    await untilReady(
      controlPlane,
      () =>
        fetch(`${url}/readyz`).then(
          (r) => r.ok,
          () => false,
        ),
      30_000,
    );
    const token = await tokenOf(url, role);
    const report = join(toolsDir, 'results', `schemathesis-${role}.json`);
    const result = await run(
      [
        PROGRAM,
        `--config-file=${join(repositoryRoot, 'test', 'schemathesis.toml')}`,
        'run',
        `${url}/api/openapi.json`,
        '--checks=all',
        `--header=Authorization: Bearer ${token}`,
        `--seed=${options.seed}`,
        `--max-examples=${options.examples}`,
        '--continue-on-failure',
        '--suppress-health-check=all',
        '--no-color',
        '--report=json',
        `--report-json-path=${report}`,
      ],
      { cwd: dir, deadlineMs: 30 * 60_000, mayFail: true, env: { PYTHONUNBUFFERED: '1' } },
    );
    console.log(result.stdout);
    if (result.stderr !== '') console.error(result.stderr);
    return result.code === 0;
  } finally {
    await controlPlane.stop();
    rmSync(dir, { recursive: true, force: true });
  }
}

/**
 * Creates a personal token: calls that schemathesis makes on its way, such as the sign-out, do not
 * revoke it.
 */
async function tokenOf(url: string, role: Role): Promise<string> {
  const anonymous = createClient({ baseUrl: url });
  const admin = await anonymous.call('login', {
    body: { email: 'admin@example.com', password: PASSWORD },
  });
  const authorized = (token: string) =>
    createClient({ baseUrl: url, headers: () => ({ authorization: `Bearer ${token}` }) });
  const email = `${role}@example.com`;
  if (role !== 'admin')
    await authorized(admin.token).call('createUser', { body: { email, role, password: PASSWORD } });
  const session =
    role === 'admin'
      ? admin
      : await anonymous.call('login', { body: { email, password: PASSWORD } });
  const { token } = await authorized(session.token).call('createToken', {
    body: {
      name: 'schemathesis',
      role,
      expires_at: new Date(Date.now() + 86_400_000).toISOString(),
    },
  });
  return token;
}

const roles = ROLES.filter((role) => options.role === undefined || options.role === role);
const why = await install();
if (why !== null) {
  console.error(`test:api: ${why}`);
  console.log(`\n0 passed, ${roles.length} failed, 0 skipped`);
  process.exit(1);
}
let failed = 0;
for (const role of roles) {
  console.log(`\ntest:api: as ${role}`);
  if (!(await tryAs(role))) failed++;
}
console.log(`\n${roles.length - failed} passed, ${failed} failed, 0 skipped`);
process.exitCode = failed === 0 ? 0 : 1;
