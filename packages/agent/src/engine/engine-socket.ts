/**
 * Opens connections to the container engine: unix socket, TCP, TLS, or `docker system dial-stdio`.
 */
import { existsSync, readFileSync } from 'node:fs';
import { Agent, type AgentOptions } from 'node:http';
import { connect } from 'node:net';
import { Duplex, PassThrough } from 'node:stream';
import { connect as connectTls, type SecureContextOptions } from 'node:tls';
import { exec } from '@berth/kit/exec';
import { outputTail } from '../failures.ts';
import type { EngineAddress, TlsFiles } from './engine-address.ts';

/** An HTTP agent that connects every request to the engine, whatever its host. */
export class EngineAgent extends Agent {
  readonly #address: EngineAddress;
  readonly #env: NodeJS.ProcessEnv;
  /** `env`: the complete environment of the ssh process. */
  constructor(address: EngineAddress, env: NodeJS.ProcessEnv, options: AgentOptions) {
    super(options);
    this.#address = address;
    this.#env = env;
  }
  override createConnection(): Duplex {
    const address = this.#address;
    if (address.kind === 'unix') return connect({ path: address.path });
    if (address.kind === 'ssh') return new ProgramSocket(address.argv, this.#env);
    const { host, port, tls } = address;
    if (tls === null) return connect({ host, port });
    return connectTls({ host, port, ...certificatesIn(tls) });
  }
}

/**
 * Reads the files for each connection, because an operator can replace them while the agent runs.
 */
function certificatesIn({ ca, cert, key }: TlsFiles): SecureContextOptions {
  if (!existsSync(cert) || !existsSync(key)) return { ca: readFileSync(ca) };
  return { ca: readFileSync(ca), cert: readFileSync(cert), key: readFileSync(key) };
}

/** A socket over the standard input and output of a program. */
class ProgramSocket extends Duplex {
  readonly #toProgram = new PassThrough();
  readonly #stop = new AbortController();
  #resume: (() => void) | null = null;

  constructor(argv: readonly string[], env: NodeJS.ProcessEnv) {
    super({ allowHalfOpen: false });
    exec(argv, {
      env,
      input: this.#toProgram,
      signal: this.#stop.signal,
      dieWithParent: true,
      onOutput: (bytes) => this.#give(bytes),
    }).then(
      ({ code, stderr }) => this.#ended(code, stderr),
      (error: unknown) => this.destroy(error as Error),
    );
  }
  /** Waits until the reader accepts more data. */
  async #give(bytes: Buffer): Promise<void> {
    if (this.destroyed || this.push(bytes)) return;
    await new Promise<void>((resolve) => (this.#resume = resolve));
  }
  #ended(code: number | null, stderr: string): void {
    if (code === 0) this.push(null);
    else this.destroy(new Error(outputTail(stderr) || `the connection ended with exit ${code}`));
  }
  override _read(): void {
    this.#resume?.();
    this.#resume = null;
  }
  override _write(chunk: Buffer, _: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#toProgram.write(chunk, done);
  }
  override _final(done: () => void): void {
    this.#toProgram.end(done);
  }
  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#resume?.();
    this.#stop.abort();
    done(error);
  }
  // No-op versions of the socket methods that an HTTP agent calls.
  setKeepAlive(): this {
    return this;
  }
  setNoDelay(): this {
    return this;
  }
  setTimeout(): this {
    return this;
  }
  ref(): this {
    return this;
  }
  unref(): this {
    return this;
  }
}
