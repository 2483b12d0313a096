// Runs once before the other containers of compose.yml: creates the secrets that are missing, gives new volumes to the user of the image,
// and checks what the others need from the machine. It replaces nothing. It says every problem in one sentence with what to do.
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  accessSync,
  constants,
  linkSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { copyRegistryConfig } from './registry-config.mjs';

const SECRETS = '/etc/berth/secrets';
const ENGINE = '/run/engine.sock';
const {
  BERTH_ETC = '/etc/berth',
  ENGINE_SOCKET = '',
  ENGINE_GID = '',
  REGISTRY_USER = 'berth',
  BASE_DOMAIN = '',
  ACME_EMAIL = '',
  SVC_ROOT = '/svc/data',
} = process.env;
const [uid, gid] = [process.getuid(), process.getgid()];

const problems = [];
const wordsOf = (error) => (error instanceof Error ? error.message : String(error));

/** Whether this user can write here; if not, the problem is noted. `shown`: the path on the machine. */
function canWrite(path, shown) {
  try {
    accessSync(path, constants.R_OK | constants.W_OK | constants.X_OK);
    return true;
  } catch (error) {
    if (error.code === 'ENOENT')
      problems.push(`${shown} is missing. Run: install -d -o ${uid} -g ${gid} -m 0700 ${shown}`);
    else
      problems.push(
        `${shown} belongs to user ${statSync(path).uid}, not ${uid}: Berth cannot write there. Run: chown -R ${uid}:${gid} ${shown}`,
      );
    return false;
  }
}

/** Reads a secret, or null where there is none. */
function read(process, name) {
  try {
    const text = readFileSync(join(SECRETS, process, name), 'utf8').trim();
    if (text === '')
      problems.push(
        `${BERTH_ETC}/secrets/${process}/${name} is empty. Write the secret into it, or delete it`,
      );
    return text;
  } catch (error) {
    if (error.code === 'ENOENT') return null;
    problems.push(
      `${BERTH_ETC}/secrets/${process}/${name} cannot be read: ${wordsOf(error)}. Run: chown ${uid}:${gid} on it`,
    );
    return '';
  }
}

/** Writes the whole file or nothing, and never over another one. */
function write(process, name, text) {
  const path = join(SECRETS, process, name);
  const draft = `${path}.${randomBytes(6).toString('hex')}`;
  try {
    writeFileSync(draft, `${text}\n`, { mode: 0o600, flag: 'wx' });
    linkSync(draft, path);
    console.log(`created ${BERTH_ETC}/secrets/${process}/${name}`);
  } catch (error) {
    if (error.code !== 'EEXIST')
      problems.push(`${BERTH_ETC}/secrets/${process}/${name} cannot be written: ${wordsOf(error)}`);
  } finally {
    rmSync(draft, { force: true });
  }
}

/** One secret that several processes share. The first process is the one whose secret counts where another has none. */
function shared(name, processes, encoding = 'hex') {
  const found = processes.map((process) => read(process, name));
  const value =
    found.find((text) => text !== null && text !== '') ?? randomBytes(32).toString(encoding);
  // The current secret is the first of several. The control plane accepts the earlier ones too.
  processes.forEach((process, at) => {
    if (found[at] === null) write(process, name, value.split(',')[0]);
  });
  return value.split(',')[0];
}

/** The registry accepts bcrypt only. crypt(3) of Debian makes it, and perl, which every Debian has, calls that. */
function htpasswd(password) {
  const alphabet = './ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';
  const salt = [...randomBytes(21)].map((byte) => alphabet[byte % 64]).join('');
  const script =
    'chomp(my $p = <STDIN>); my $h = crypt($p, $ARGV[0]); die "no bcrypt" unless defined $h && $h =~ /^\\$2/; print $h';
  const hash = execFileSync('perl', ['-e', script, `$2b$10$${salt}.`], {
    input: `${password}\n`,
    encoding: 'utf8',
  });
  return `${REGISTRY_USER}:${hash}`;
}

/** @returns {Promise<string | null>} what is wrong with the engine's socket */
function engineProblem() {
  const found = statSync(ENGINE);
  if (!found.isSocket())
    return `${ENGINE_SOCKET} is no socket. Start the container engine first; if that is a folder which an engine made, delete it. Or set ENGINE_SOCKET`;
  return new Promise((resolve) => {
    const asking = request({ socketPath: ENGINE, path: '/_ping', timeout: 10_000 }, (response) => {
      response.resume();
      resolve(
        response.statusCode === 200
          ? null
          : `${ENGINE_SOCKET} answers ${response.statusCode} to a ping: is that a container engine?`,
      );
    });
    asking.on('timeout', () => asking.destroy(new Error('no answer within 10 s')));
    asking.on('error', (error) => {
      if (error.code !== 'EACCES')
        resolve(`the container engine does not answer at ${ENGINE_SOCKET}: ${wordsOf(error)}`);
      else
        resolve(
          `ENGINE_GID=${ENGINE_GID} is not the group of ${ENGINE_SOCKET}, so Berth cannot use the engine. Set ENGINE_GID=${found.gid} in .env`,
        );
    });
    asking.end();
  });
}

if (
  !/^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(BASE_DOMAIN)
)
  problems.push(
    `BASE_DOMAIN=${BASE_DOMAIN} is no domain name. Write it in lower case without https:// and without a path: berth.example.org`,
  );
if (!/^[^@\s]+@[^@\s]+$/.test(ACME_EMAIL))
  problems.push(`ACME_EMAIL=${ACME_EMAIL} is no e-mail address`);
const names = ['control-plane', 'gateway', 'agent-builder', 'agent-deploy', 'registry'];
if (
  names.map((name) => canWrite(join(SECRETS, name), `${BERTH_ETC}/secrets/${name}`)).every(Boolean)
) {
  shared('AGENT_SECRET', ['control-plane', 'agent-builder', 'agent-deploy']);
  shared('GATEWAY_SECRET', ['control-plane', 'gateway']);
  shared('SESSION_SECRET', ['gateway']);
  // Berth would make these two beside its database, where `berth rotate` does not replace them.
  shared('JWT_SECRET', ['control-plane']);
  // The password is the last secret that a first run makes: with it, a database may have values that only the missing key opens.
  if (
    read('control-plane', 'SECRETS_KEY') === null &&
    read('control-plane', 'REGISTRY_PASSWORD') !== null
  )
    problems.push(
      `SECRETS_KEY is missing, and the other secrets are there: put the key into ${BERTH_ETC}/secrets/control-plane/SECRETS_KEY; ` +
        'an earlier version kept it in the volume of the control plane (/var/lib/berth/secrets-key). ' +
        'If it is lost: docs/disasters.md "The key is gone"',
    );
  else shared('SECRETS_KEY', ['control-plane'], 'base64');
  const password = shared('REGISTRY_PASSWORD', ['control-plane']);
  if (read('registry', 'htpasswd') === null && password !== '')
    write('registry', 'htpasswd', htpasswd(password));
}
canWrite(SVC_ROOT, SVC_ROOT);
try {
  const copied = copyRegistryConfig('/etc/berth/registry.yml', '/etc/berth-registry');
  if (copied !== null) console.log(copied);
} catch (error) {
  problems.push(`compose/registry.yml cannot be copied for the registry: ${wordsOf(error)}`);
}
const engine = await engineProblem();
if (engine !== null) problems.push(engine);

for (const problem of problems) console.error(`berth: ${problem}`);
if (problems.length > 0) process.exitCode = 1;
else console.log('berth: this machine has everything that Berth needs');
