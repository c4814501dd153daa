package servers

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

// Programs read the clock through the vDSO, a library of a page or two that the kernel maps
// into each process. Whoever may trace a process may write there, and the process gets a copy
// of its own: so the wall clock of one process can be set without the machine's. Preloaded
// libraries do not reach programs in Go, and end redis-server, whose allocator reads the
// clock before they are ready; a time namespace has no wall clock of its own.

// falseClock is what takes the place of the vDSO's functions. Each asks the kernel, and adds
// the seconds that stand behind it to what it says of the wall clock, and to nothing else.
var falseClock = []byte{
	// clock_gettime(clock, *timespec)
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228
	0x0f, 0x05, // syscall
	0x85, 0xc0, // test eax, eax
	0x75, 0x13, // jne to ret
	0x85, 0xff, // test edi, edi: CLOCK_REALTIME
	0x74, 0x05, // je to mov
	0x83, 0xff, 0x05, // cmp edi, 5: CLOCK_REALTIME_COARSE
	0x75, 0x0a, // jne to ret
	0x48, 0x8b, 0x0d, 0x35, 0x00, 0x00, 0x00, // mov rcx, [ahead]
	0x48, 0x01, 0x0e, // add [rsi], rcx
	0xc3, // ret
	// gettimeofday(*timeval, *timezone)
	0xb8, 0x60, 0x00, 0x00, 0x00, // mov eax, 96
	0x0f, 0x05, // syscall
	0x48, 0x85, 0xff, // test rdi, rdi
	0x74, 0x0a, // je to ret
	0x48, 0x8b, 0x0d, 0x1e, 0x00, 0x00, 0x00, // mov rcx, [ahead]
	0x48, 0x01, 0x0f, // add [rdi], rcx
	0xc3, // ret
	// time(*time_t)
	0xb8, 0xc9, 0x00, 0x00, 0x00, // mov eax, 201
	0x0f, 0x05, // syscall
	0x48, 0x03, 0x05, 0x0c, 0x00, 0x00, 0x00, // add rax, [ahead]
	0x48, 0x85, 0xff, // test rdi, rdi
	0x74, 0x03, // je to ret
	0x48, 0x89, 0x07, // mov [rdi], rax
	0xc3,             // ret
	0x0f, 0x1f, 0x00, // to a multiple of eight bytes
}

// falseFunctions are where the functions begin in falseClock.
var falseFunctions = map[string]int{"__vdso_clock_gettime": 0, "__vdso_gettimeofday": 0x1f, "__vdso_time": 0x36}

// SetClock sets the wall clock of a process and of those that it has started, and of no
// others, ahead of the machine's by whole seconds, or back if they are negative; 0 is right
// again. Their monotonic clock stays as it is, so that to the process a step ahead is what it
// sees when the machine was suspended. All of them are stopped meanwhile: no one of them sees
// another time than the others.
func SetClock(pid int, ahead time.Duration) error {
	err := Halt(pid) // first: it starts no others from here on
	all := append(children(pid), pid)
	for _, one := range all {
		err = errors.Join(err, Halt(one))
	}
	for _, one := range all {
		if err == nil && runs(one) { // it may have ended by itself
			err = setClock(one, ahead)
		}
	}
	for _, one := range all {
		_ = syscall.Kill(one, syscall.SIGCONT) // so may it now
	}
	if err != nil {
		return fmt.Errorf("servers: setting the clock of process %d: %w", pid, err)
	}
	return nil
}

func setClock(pid int, ahead time.Duration) error {
	if ahead%time.Second != 0 {
		return fmt.Errorf("%v are not whole seconds", ahead)
	}
	begin, end, err := vdso(pid)
	if err != nil {
		return err
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	image := make([]byte, end-begin)
	if _, err := memory.ReadAt(image, begin); err != nil {
		return err
	}
	place := len(image) - len(falseClock) - 8
	if place < 0 {
		return errors.New("its vDSO has no room")
	}
	seconds := binary.LittleEndian.AppendUint64(nil, uint64(ahead/time.Second))
	if !bytes.Equal(image[place:len(image)-8], falseClock) {
		if len(bytes.Trim(image[place:], "\x00")) > 0 {
			return errors.New("its vDSO has no room")
		}
		if err := divert(memory, begin, image, place); err != nil {
			return err
		}
	}
	_, err = memory.WriteAt(seconds, end-8)
	return err
}

// divert writes the functions, and has those of the vDSO jump to them.
func divert(memory io.WriterAt, begin int64, image []byte, place int) error {
	library, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return err
	}
	symbols, err := library.DynamicSymbols()
	if err != nil {
		return err
	}
	if _, err := memory.WriteAt(falseClock, begin+int64(place)); err != nil {
		return err
	}
	found := 0
	for _, s := range symbols {
		to, ok := falseFunctions[s.Name]
		if !ok {
			continue
		}
		found++
		const size = 5 // of a jump
		jump := binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(place+to-int(s.Value)-size))
		if _, err := memory.WriteAt(jump, begin+int64(s.Value)); err != nil {
			return err
		}
	}
	if found != len(falseFunctions) {
		return fmt.Errorf("its vDSO has %d of the functions %v", found, falseFunctions)
	}
	return nil
}

// vdso returns where the library is in the process's memory.
func vdso(pid int) (begin, end int64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			_, err := fmt.Sscanf(line, "%x-%x", &begin, &end)
			return begin, end, err
		}
	}
	return 0, 0, errors.New("it has no vDSO")
}
