/** A terminal (xterm.js). Only the console loads this file. */
import '@xterm/xterm/css/xterm.css';
import { FitAddon } from '@xterm/addon-fit';
import { Terminal as Xterm } from '@xterm/xterm';
import { useEffect, useRef } from 'react';

export type TerminalHandle = {
  size: { rows: number; cols: number };
  write(bytes: Uint8Array | string, done?: () => void): void;
  clear(): void;
  focus(): void;
};
type TerminalProps = {
  label: string;
  onOpen: (terminal: TerminalHandle) => void;
  /** The keys of the person as bytes. */
  onInput: (bytes: Uint8Array) => void;
  onResize: (size: { rows: number; cols: number }) => void;
  /** Shift and Escape: the keyboard leaves the terminal. */
  onLeave: () => void;
};

const COLOURS = { background: '#12161c', foreground: '#e6e9ee', cursor: '#e6e9ee' };
const text = new TextEncoder();

export function Terminal(props: TerminalProps) {
  const host = useRef<HTMLDivElement>(null);
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    const element = host.current;
    if (element === null) return;
    const terminal = new Xterm({
      fontSize: 13,
      fontFamily: 'ui-monospace, SFMono-Regular, Menlo, Consolas, monospace',
      theme: COLOURS,
      cursorBlink: false,
      scrollback: 5_000,
    });
    const fit = new FitAddon();
    terminal.loadAddon(fit);
    terminal.open(element);
    terminal.textarea?.setAttribute('aria-label', latest.current.label);
    fit.fit();
    terminal.attachCustomKeyEventHandler((event) => {
      if (event.key !== 'Escape' || !event.shiftKey) return true;
      if (event.type === 'keydown') latest.current.onLeave();
      return false;
    });
    terminal.onData((data) => latest.current.onInput(text.encode(data)));
    terminal.onBinary((data) =>
      latest.current.onInput(Uint8Array.from(data, (one) => one.charCodeAt(0))),
    );
    terminal.onResize((size) => latest.current.onResize(size));
    const observer = new ResizeObserver(() => fit.fit());
    observer.observe(element);
    latest.current.onOpen({
      get size() {
        return { rows: terminal.rows, cols: terminal.cols };
      },
      write: (bytes, done) => terminal.write(bytes, done),
      clear: () => terminal.reset(),
      focus: () => terminal.focus(),
    });
    return () => {
      observer.disconnect();
      terminal.dispose();
    };
  }, []);
  return (
    <div style={{ background: COLOURS.background, padding: 8, borderRadius: 6 }}>
      <div ref={host} style={{ height: 'min(52vh, 30rem)' }} />
    </div>
  );
}
